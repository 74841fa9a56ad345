// Counts tokens with the vocabulary o200k_base, which the package brings along: reads a JSON array of
// texts, prints the array of their counts.
import { countTokens } from 'gpt-tokenizer/encoding/o200k_base';

let input = '';
for await (const chunk of process.stdin) input += chunk;
const counts = JSON.parse(input).map((text) => countTokens(text, { disallowedSpecial: new Set() }));
process.stdout.write(JSON.stringify(counts));
