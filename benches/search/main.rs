//! Accuracy and speed of the tool search: the questions in `questions/` over the corpora in
//! `corpora/`.
//!
//! `cargo bench --bench search`; `-- --half HALF` asks the questions of one half only, `-- --misses
//! HALF` shows the questions of a half without a hit. With `--features embedding-models` and `--
//! --embeddings FOLDER` it also searches by meaning, with the model of that folder, and with `--
//! --service URL` with the service there. `--query-prefix TEXT` is prepended to each question for the model.
//!
//! Recall at k of a question is 1 if one of the first k answers is a wanted tool of grade 2 (of
//! grade 1, if no tool has grade 2), and 0 otherwise. Tokens are estimated: a quarter of the bytes
//! of the answer.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    reason = "a bench that meets a surprise ends there, and measures from outside"
)]

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value;
use trunkline::catalog::{
    Analyser, QuestionMeaning, SearchDocument, SearchIndex, SearchQuery, SynonymGroups, TextVector,
    ToolSignature, embedded_question, embedded_text,
};
use trunkline::config::{Config, ConfigSource, EmbeddingModel, SystemEnvironment};
use trunkline::upstream::EmbeddingService;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Deserialize)]
struct ToolFile {
    servers: Vec<ToolServer>,
}

#[derive(Deserialize)]
struct ToolServer {
    name: String,
    tools: Vec<Value>,
}

#[derive(Deserialize)]
struct Question {
    #[serde(rename = "question")]
    text: String,
    kind: String,
    half: String,
    #[serde(default)]
    wants: BTreeMap<String, u8>,
}

/// Options for the output and the comparison.
#[derive(Clone, Copy)]
struct BenchOptions<'a> {
    misses: Option<&'a str>,
    maker: Option<&'a VectorMaker>,
    query_prefix: &'a str,
}

/// Source of vectors.
enum VectorMaker {
    Model(Arc<EmbeddingModel>),
    Service(Box<EmbeddingService>, tokio::runtime::Runtime),
}

impl VectorMaker {
    fn ask(url: &str) -> Self {
        let text = format!("[search.embeddings]\nurl = \"{url}\"\nmodel_name = \"bench\"\n");
        let source =
            ConfigSource { name: "bench".into(), folder: ".".into(), bytes: text.into_bytes() };
        let config = Config::read(&source, &SystemEnvironment).unwrap();
        let service = EmbeddingService::from_config(&config.search.embeddings.unwrap()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self::Service(Box::new(service), runtime)
    }

    fn make(&self, texts: &[String]) -> Vec<Option<TextVector>> {
        match self {
            Self::Model(model) => {
                texts.iter().map(|text| TextVector::from_numbers(&model.embed(text))).collect()
            }
            Self::Service(service, runtime) => {
                let batches = texts.chunks(32).flat_map(|texts| {
                    let asked = service.embed(texts, Duration::from_mins(2));
                    runtime.block_on(asked).unwrap()
                });
                batches.collect()
            }
        }
    }
}

/// A tool of a corpus.
struct CorpusTool {
    server: String,
    /// `server/tool`.
    key: String,
    raw: String,
}

/// The answers to a set of questions, counted.
#[derive(Default)]
struct Tally {
    questions: usize,
    first: usize,
    five: usize,
    ranks: f64,
    confident: usize,
    /// Tokens of each answer.
    tokens: Vec<usize>,
}

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/search");
    let folder = std::env::var_os("SEARCH_CORPORA").map_or(folder, Into::into);
    let tools: ToolFile = read_json(&folder.join("corpora/tools.json"));
    let corpora: BTreeMap<String, Value> = read_json(&folder.join("corpora/corpora.json"));
    let arguments: Vec<_> = std::env::args().collect();
    let option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).map(String::as_str)
    };
    let half = option("--half");
    let begin = Instant::now();
    let model = option("--embeddings")
        .map(|folder| EmbeddingModel::load(Path::new(folder), &SystemEnvironment).unwrap());
    let maker = match (model, option("--service")) {
        (Some(model), _) => Some(VectorMaker::Model(model)),
        (None, Some(url)) => Some(VectorMaker::ask(url)),
        (None, None) => None,
    };
    if maker.is_some() {
        println!("the model was read in {:.0} ms", begin.elapsed().as_secs_f64() * 1e3);
    }
    let options = BenchOptions {
        misses: option("--misses"),
        maker: maker.as_ref(),
        query_prefix: option("--query-prefix").unwrap_or_default(),
    };
    println!(
        "recall@k: 1 if a wanted tool of grade 2 (of grade 1, if none has 2) is among the first k\n\
         MRR: the mean of 1/rank of the first such tool among the first 10\n\
         tokens: of five compact signatures, a quarter of their bytes; the median, and the 95th of a hundred\n\
         none: questions that no tool answers, and how many of them got no confident answer\n"
    );
    let mut all: Vec<_> =
        corpora.iter().map(|(name, servers)| (name, choose_tools(&tools, servers))).collect();
    all.sort_by_key(|(_, tools)| tools.len());
    for (name, tools) in all {
        let mut questions: Vec<Question> =
            read_json(&folder.join(format!("questions/{name}.json")));
        questions.retain(|question| half.is_none_or(|half| question.half == half));
        measure_corpus(name, &tools, &questions, options);
        if name == "large" {
            measure_speed(&tools, &questions);
        }
    }
}

fn measure_corpus(
    name: &str,
    tools: &[CorpusTool],
    questions: &[Question],
    options: BenchOptions<'_>,
) {
    let begin = Instant::now();
    let mut analyser = Analyser::default();
    let elements: Vec<_> =
        tools.iter().map(|tool| Arc::new(analyser.analyse(tool.raw.as_bytes()))).collect();
    let analysis = begin.elapsed();
    let begin = Instant::now();
    let documents = elements.iter().zip(tools).map(|(element, tool)| SearchDocument {
        element: Arc::clone(element),
        server: &tool.server,
        renamed: None,
    });
    let index = SearchIndex::build(documents, Arc::new(SynonymGroups::default()), &mut analyser);
    let built = begin.elapsed();
    let bytes: usize = tools.iter().map(|tool| tool.raw.len()).sum();
    println!(
        "## {name}: {} tools, {} KB; analysed in {:.1} ms, index built in {:.1} ms; \
         the analysis takes {} KB, the index {} KB",
        tools.len(),
        bytes / 1000,
        analysis.as_secs_f64() * 1e3,
        built.as_secs_f64() * 1e3,
        elements.iter().map(|element| element.size()).sum::<usize>() / 1000,
        index.size() / 1000,
    );
    let corpus = Corpus { tools, index: &index, vectors: None };
    ask_questions(&corpus, questions, options);
    if let Some(maker) = options.maker {
        let begin = Instant::now();
        let texts = tools.iter().map(|tool| embedded_text(&tool.server, tool.raw.as_bytes()));
        let texts: Vec<_> = texts.collect();
        let vectors: Vec<_> =
            maker.make(&texts).into_iter().map(|vector| vector.map(Arc::new)).collect();
        let size: usize = vectors.iter().flatten().map(|vector| vector.size()).sum();
        println!(
            "   with embeddings: {} dimensions; vectors made in {:.1} ms, they take {} KB",
            vectors.iter().flatten().next().map_or(0, |vector| vector.dimensions()),
            begin.elapsed().as_secs_f64() * 1e3,
            size / 1000
        );
        ask_questions(&Corpus { vectors: Some((maker, &vectors)), ..corpus }, questions, options);
    }
}

/// The corpus to search.
#[derive(Clone, Copy)]
struct Corpus<'a> {
    tools: &'a [CorpusTool],
    index: &'a SearchIndex,
    vectors: Option<(&'a VectorMaker, &'a [Option<Arc<TextVector>>])>,
}

fn ask_questions(corpus: &Corpus<'_>, questions: &[Question], options: BenchOptions<'_>) {
    let Corpus { tools, index, vectors } = *corpus;
    let mut tallies: BTreeMap<(&str, &str), Tally> = BTreeMap::new();
    let (mut spent, mut longest, mut asked) = (Duration::ZERO, Duration::ZERO, 0_u32);
    for question in questions {
        let best = question.wants.values().max().copied().unwrap_or_default();
        let best: Vec<&str> = question
            .wants
            .iter()
            .filter(|(_, grade)| **grade == best)
            .map(|(key, _)| &**key)
            .collect();
        let begin = Instant::now();
        let query = SearchQuery::parse(&question.text);
        let vector = vectors.and_then(|(maker, _)| {
            let text = format!("{}{}", options.query_prefix, embedded_question(&question.text));
            maker.make(&[text]).into_iter().next().flatten()
        });
        let meaning = vectors.zip(vector.as_ref());
        let meaning =
            meaning.map(|((_, documents), question)| QuestionMeaning { question, documents });
        let hits = index.find_with_meaning(&query, meaning, 10, |_| true);
        let time = begin.elapsed();
        (spent, longest, asked) = (spent + time, longest.max(time), asked + 1);
        let rank = hits.iter().position(|hit| best.contains(&&*tools[hit.id.0].key));
        let is_confident = hits.first().is_some_and(|hit| hit.is_confident);
        let is_miss =
            if best.is_empty() { is_confident } else { rank.is_none_or(|rank| rank >= 5) };
        if is_miss && options.misses == Some(&*question.half) {
            let shown =
                hits.iter().take(5).map(|hit| format!("{} {:.1}", tools[hit.id.0].key, hit.score));
            println!(
                "  {} [{}] {rank:?} {is_confident} wants {best:?}\n      {}",
                question.text,
                question.kind,
                shown.collect::<Vec<_>>().join(", ")
            );
        }
        let tokens: usize = hits
            .iter()
            .take(5)
            .map(|hit| {
                ToolSignature::from_raw(tools[hit.id.0].raw.as_bytes()).to_string().len() / 4
            })
            .sum();
        for kind in [&*question.kind, "all"] {
            if kind == "all" && best.is_empty() {
                continue;
            }
            let tally = tallies.entry((&question.half, kind)).or_default();
            tally.add_answer(rank, is_confident, tokens);
        }
    }
    println!(
        "   questions of half, kind      n  recall@1  recall@5    MRR  confident  tokens, 95 %"
    );
    for ((half, kind), tally) in &mut tallies {
        tally.print_row(half, kind);
    }
    println!(
        "   {:.0} µs a query on average, {:.0} µs the slowest\n",
        spent.as_secs_f64() * 1e6 / f64::from(asked.max(1)),
        longest.as_secs_f64() * 1e6
    );
}

/// Measures the time of a query in an index of 10,000 tools, made of copies of a corpus.
fn measure_speed(tools: &[CorpusTool], questions: &[Question]) {
    let mut analyser = Analyser::default();
    let copies = (0..10_000).zip(tools.iter().cycle());
    let copies: Vec<_> = copies
        .map(|(number, tool)| (format!("{}{}", tool.server, number / tools.len()), tool))
        .collect();
    let elements: Vec<_> =
        tools.iter().map(|tool| Arc::new(analyser.analyse(tool.raw.as_bytes()))).collect();
    let documents = copies.iter().zip(elements.iter().cycle()).map(|((server, _), element)| {
        SearchDocument { element: Arc::clone(element), server, renamed: None }
    });
    let index = SearchIndex::build(documents, Arc::new(SynonymGroups::default()), &mut analyser);
    let visible: [(&str, &dyn Fn(usize) -> bool); 2] =
        [("all visible", &|_| true), ("half of them visible", &|place| place % 2 == 0)];
    for (which, is_visible) in visible {
        let mut times: Vec<_> = questions
            .iter()
            .map(|question| {
                let begin = Instant::now();
                let query = SearchQuery::parse(&question.text);
                std::hint::black_box(index.find(&query, 5, |id| is_visible(id.0)));
                begin.elapsed().as_secs_f64() * 1e6
            })
            .collect();
        times.sort_unstable_by(f64::total_cmp);
        println!(
            "10,000 tools, {which}: {:.0} µs a query in the middle, {:.0} µs at the 95th of a hundred",
            times[times.len() / 2],
            times[times.len() * 95 / 100]
        );
    }
    println!();
}

impl Tally {
    fn add_answer(&mut self, rank: Option<usize>, is_confident: bool, tokens: usize) {
        self.questions += 1;
        self.first += usize::from(rank == Some(0));
        self.five += usize::from(rank.is_some_and(|rank| rank < 5));
        self.ranks += rank.map_or(0.0, |rank| 1.0 / (rank as f64 + 1.0));
        self.confident += usize::from(is_confident);
        self.tokens.push(tokens);
    }

    fn print_row(&mut self, half: &str, kind: &str) {
        self.tokens.sort_unstable();
        let share = |part: usize| part as f64 / self.questions as f64;
        if kind == "none" {
            println!(
                "   {half:<10} {kind:<12} {:>5}  not confident: {:.3}",
                self.questions,
                1.0 - share(self.confident)
            );
            return;
        }
        println!(
            "   {half:<10} {kind:<12} {:>5}     {:.3}     {:.3}  {:.3}      {:.3}   {:>5}  {:>4}",
            self.questions,
            share(self.first),
            share(self.five),
            self.ranks / self.questions as f64,
            share(self.confident),
            self.tokens[self.questions / 2],
            self.tokens[self.questions * 95 / 100]
        );
    }
}

/// Returns the tools of a corpus: a list of servers, or a map from servers to `"*"` or the names of
/// tools.
fn choose_tools(file: &ToolFile, corpus: &Value) -> Vec<CorpusTool> {
    let chosen: HashMap<&str, Option<&Vec<Value>>> = match corpus {
        Value::Array(servers) => {
            servers.iter().filter_map(|one| Some((one.as_str()?, None))).collect()
        }
        Value::Object(servers) => {
            servers.iter().map(|(name, tools)| (&**name, tools.as_array())).collect()
        }
        _ => HashMap::new(),
    };
    let servers =
        file.servers.iter().filter_map(|server| Some((server, chosen.get(&*server.name)?)));
    let tools = servers.flat_map(|(server, only)| {
        server.tools.iter().filter_map(move |tool| {
            let name = tool.get("name")?.as_str()?;
            let is_chosen = only.is_none_or(|only| only.iter().any(|one| one == name));
            is_chosen.then(|| CorpusTool {
                server: server.name.clone(),
                key: format!("{}/{name}", server.name),
                raw: tool.to_string(),
            })
        })
    });
    tools.collect()
}

fn read_json<T: for<'a> Deserialize<'a>>(path: &Path) -> T {
    let text = std::fs::read_to_string(path).unwrap_or_else(|_| panic!("no {}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
