use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use trunkline_core::clock;

use super::*;

/// A server and its tools: names, and descriptions.
type Listed = (&'static str, &'static [(&'static str, &'static str)]);

const SERVERS: [Listed; 4] = [
    (
        "github",
        &[
            ("create_issue", "Create a new issue in a repository."),
            ("list_issues", "List the issues of a repository."),
            ("get_issue", "Get one issue by its number."),
            ("delete_branch", "Delete a branch of a repository."),
            ("create_pull_request", "Open a pull request."),
            ("list_branches", "List the branches of a repository."),
        ],
    ),
    (
        "files",
        &[
            ("read_file", "Read the content of a file."),
            ("write_file", "Write text to a file."),
            ("delete_file", "Delete a file."),
            ("list_directory", "List the files in a directory."),
        ],
    ),
    (
        "jira",
        &[
            ("create_issue", "Create an issue in a project."),
            ("list_issues", "List the issues of a project."),
        ],
    ),
    ("clock", &[("get_current_time", "Tell the current time in a time zone.")]),
];

struct Corpus {
    keys: Vec<String>,
    servers: Vec<String>,
    elements: Vec<Arc<AnalysedElement>>,
    analyser: Analyser,
}

impl Corpus {
    fn new(tools: impl IntoIterator<Item = (String, Value)>) -> Self {
        let mut analyser = Analyser::default();
        let (mut keys, mut servers, mut elements) = (Vec::new(), Vec::new(), Vec::new());
        for (server, tool) in tools {
            keys.push(format!("{server}/{}", tool["name"].as_str().unwrap_or_default()));
            elements.push(Arc::new(analyser.analyse(tool.to_string().as_bytes())));
            servers.push(server);
        }
        Self { keys, servers, elements, analyser }
    }

    fn of_servers() -> Self {
        let tools = SERVERS.iter().flat_map(|(server, tools)| {
            tools.iter().map(move |(name, description)| (*server, *name, *description))
        });
        Self::described(tools)
    }

    /// Tools by server, name and description.
    fn described<'a>(tools: impl IntoIterator<Item = (&'a str, &'a str, &'a str)>) -> Self {
        Self::new(tools.into_iter().map(|(server, name, description)| {
            (server.to_owned(), json!({ "name": name, "description": description }))
        }))
    }

    /// An index of the documents that `keep` selects.
    fn index(&mut self, keep: impl Fn(usize) -> bool, synonyms: SynonymGroups) -> SearchIndex {
        let documents = (0..self.keys.len()).filter(|place| keep(*place));
        let documents: Vec<_> = documents
            .map(|place| SearchDocument {
                element: Arc::clone(&self.elements[place]),
                server: &self.servers[place],
                renamed: None,
            })
            .collect();
        SearchIndex::build(documents, Arc::new(synonyms), &mut self.analyser)
    }

    fn ask(&mut self, question: &str) -> Vec<String> {
        self.ask_with(question, SynonymGroups::default())
    }

    fn ask_with(&mut self, question: &str, synonyms: SynonymGroups) -> Vec<String> {
        let index = self.index(|_| true, synonyms);
        let hits = index.find(&SearchQuery::parse(question), 5, |_| true);
        hits.iter().map(|hit| self.keys[hit.id.0].clone()).collect()
    }

    fn first(&mut self, question: &str) -> String {
        self.ask(question).into_iter().next().unwrap_or_default()
    }
}

#[test]
fn a_tool_is_found_by_its_public_name_and_by_all_words_of_its_own() {
    let others = (0..40).map(|number| {
        let verb = ["get", "list", "create", "compare", "search"][number % 5];
        let name = format!("{verb}_commit_{number}");
        ("hub".to_owned(), json!({"name": name, "description": "About a commit."}))
    });
    let git = json!({"name": "git_commit", "description": "Records changes to the repository"});
    let rest = (0..100).map(|number| {
        ("rest".to_owned(), json!({"name": format!("other_{number}"), "description": "Anything"}))
    });
    let mut corpus = Corpus::new(others.chain([("git".to_owned(), git)]).chain(rest));
    let index = corpus.index(|_| true, SynonymGroups::default());
    for question in ["git__git_commit", "git-git-commit", "commit", "git commit"] {
        let hits = index.find(&SearchQuery::parse(question), 5, |_| true);
        assert_eq!(hits[0].id, DocumentId(40), "{question}: {hits:?}");
    }
}

#[test]
fn questions_find_the_tool_that_was_meant() {
    let mut corpus = Corpus::of_servers();
    for (question, key) in [
        ("read a file", "files/read_file"),
        ("show me the contents of this document", "files/read_file"),
        ("erase a file", "files/delete_file"),
        ("what files are in the folder", "files/list_directory"),
        ("open a PR", "github/create_pull_request"),
        ("new merge request", "github/create_pull_request"),
        ("what time is it", "clock/get_current_time"),
        ("createPullRequest", "github/create_pull_request"),
        // Misspelt.
        ("delte the brnach", "github/delete_branch"),
        ("wirte a flie", "files/write_file"),
        // In other languages.
        ("Lösche die Datei", "files/delete_file"),
        ("lire un fichier", "files/read_file"),
        ("¿qué hora es?", "clock/get_current_time"),
        ("удали файл", "files/delete_file"),
        ("删除文件", "files/delete_file"),
        ("ファイルを読む", "files/read_file"),
    ] {
        assert_eq!(corpus.first(question), key, "{question}: {:?}", corpus.ask(question));
    }
}

#[test]
fn words_that_belong_together_are_found_as_one() {
    let tools = [
        ("grafana", "list_datasources", "Lists what is configured."),
        ("grafana", "list_panels", "Lists the data of panels."),
        ("datadog", "get_rum_events", "Retrieves events."),
        ("datadog", "get_events", "Retrieves real events of a user."),
        ("calendar", "set_date", "Sets a date."),
    ];
    let mut corpus = Corpus::described(tools);
    for (question, key) in [
        ("show data sources", "grafana/list_datasources"),
        ("real user monitoring events", "datadog/get_rum_events"),
        // No acronym: a verb.
        ("some early time on the date", "calendar/set_date"),
    ] {
        assert_eq!(corpus.first(question), key, "{question}: {:?}", corpus.ask(question));
    }
}

#[test]
fn a_server_that_is_named_is_preferred() {
    let mut corpus = Corpus::of_servers();
    assert_eq!(
        corpus.ask("github issues")[..3].iter().filter(|key| key.starts_with("github")).count(),
        3
    );
    assert_eq!(corpus.first("create an issue in jira"), "jira/create_issue");
    assert_eq!(corpus.first("list jira issues"), "jira/list_issues");
}

/// A server of bookkeeping and one of books, which has `more` tools with the words of bookkeeping.
fn books_and_bookkeeping(more: usize) -> Corpus {
    let tools = [
        ("accounts", "list_bills", "Bills of a supplier."),
        ("accounts", "list_payments", "Payments by quarter."),
        ("accounts", "get_statement", "A statement of what came in."),
        ("library", "get_statement", "A statement of what was lent."),
    ];
    let more: Vec<_> = (0..more).map(|number| format!("tool_{number}")).collect();
    let more = more.iter().map(|name| ("library", &**name, "Bills, payments, suppliers."));
    Corpus::described(tools.into_iter().chain(more))
}

/// The score of the statement of bookkeeping, divided by that of the other server's.
fn preference(corpus: &mut Corpus, question: &str) -> f32 {
    let index = corpus.index(|_| true, SynonymGroups::default());
    let hits = index.find(&SearchQuery::parse(question), 100, |_| true);
    let score = |key: &str| hits.iter().find(|hit| corpus.keys[hit.id.0] == key).unwrap().score;
    score("accounts/get_statement") / score("library/get_statement")
}

#[test]
fn a_server_with_all_words_in_its_tools_is_preferred() {
    let question = "statement for the supplier whose payments came last quarter";
    let times = preference(&mut books_and_bookkeeping(0), question);
    // Its own words make it about 1.3 times better.
    assert!(times > 2.0, "{times}");
}

#[test]
fn a_server_is_not_preferred_for_its_size() {
    let times = preference(&mut books_and_bookkeeping(30), "statement of supplier bills");
    assert!(times > 1.0, "{times}");
}

#[test]
fn the_verb_of_a_question_decides_between_tools_of_one_noun() {
    let mut corpus = Corpus::of_servers();
    assert_eq!(corpus.first("show branches"), "github/list_branches");
    assert_eq!(corpus.first("remove branch"), "github/delete_branch");
    assert_eq!(corpus.first("which branches are there"), "github/list_branches");
}

#[test]
fn words_of_an_occasion_find_tools_for_it() {
    let tools = ["refunds", "thermostats", "branches", "invitations"];
    let tool = |name: &str| json!({"name": name, "description": format!("Manage {name}.")});
    let mut corpus = Corpus::new(tools.map(|name| ("s".to_owned(), tool(name))));
    assert_eq!(corpus.first("she was charged twice and wants her money back"), "s/refunds");
    assert_eq!(corpus.first("it is freezing in the bedroom"), "s/thermostats");
}

#[test]
fn synonyms_of_the_configuration_count() {
    let mut corpus = Corpus::of_servers();
    assert!(!corpus.ask("wombat").iter().any(|key| key == "github/list_branches"));
    let groups =
        || SynonymGroups::from_groups([["wombat", "branch"], ["kick the bucket", "delete"]]);
    assert!(corpus.ask_with("wombat", groups()).contains(&"github/list_branches".to_owned()));
    assert_eq!(corpus.ask_with("kick the bucket wombat", groups())[0], "github/delete_branch");
}

#[test]
fn a_name_finds_its_tool_before_all_others() {
    let mut corpus = Corpus::of_servers();
    assert_eq!(corpus.first("list_directory"), "files/list_directory");
    assert_eq!(corpus.first("get_issue"), "github/get_issue");
}

#[test]
fn a_configured_name_is_found_too() {
    let mut analyser = Analyser::default();
    let element = Arc::new(analyser.analyse(br#"{"name":"x17","description":"Does it."}"#));
    let document = SearchDocument { element, server: "s", renamed: Some("book_flight") };
    let index = SearchIndex::build([document], Arc::default(), &mut analyser);
    let hits = index.find(&SearchQuery::parse("book a flight"), 5, |_| true);
    assert!(hits.len() == 1 && hits[0].is_confident, "{hits:?}");
}

#[test]
fn a_question_that_nothing_answers_has_no_confident_answer() {
    let mut corpus = Corpus::of_servers();
    let index = corpus.index(|_| true, SynonymGroups::default());
    for question in
        ["brew espresso with oat milk", "qwzx", "xyzzy plugh frobnicate", "", "the of and"]
    {
        let hits = index.find(&SearchQuery::parse(question), 5, |_| true);
        assert!(hits.iter().all(|hit| !hit.is_confident), "{question}: {hits:?}");
    }
    let hits = index.find(&SearchQuery::parse("delete a file"), 5, |_| true);
    assert!(hits[0].is_confident);
}

#[test]
fn among_few_tools_a_word_that_most_of_them_have_still_tells() {
    let tools = [
        ("clock", "convert", "Convert a date and time from one time zone to another."),
        ("clock", "now", "Tell the current date and time."),
        ("notes", "add", "Keep a note with a title, a text and tags."),
        ("notes", "read", "Read a note by its id."),
        ("notes", "list", "List notes, newest first."),
        ("notes", "delete", "Delete a note by its id, for good."),
    ];
    let mut corpus = Corpus::described(tools);
    let index = corpus.index(|_| true, SynonymGroups::default());
    for question in ["write a note", "add one more note", "schreib eine Notiz"] {
        let hits = index.find(&SearchQuery::parse(question), 5, |_| true);
        assert!(hits[0].is_confident, "{question}");
        assert_eq!(corpus.keys[hits[0].id.0], "notes/add", "{question}");
    }
}

#[test]
fn a_limit_keeps_the_best() {
    let mut corpus = Corpus::of_servers();
    let index = corpus.index(|_| true, SynonymGroups::default());
    let query = SearchQuery::parse("list issues of a repository");
    let all = index.find(&query, 100, |_| true);
    for limit in 0..all.len() {
        assert_eq!(index.find(&query, limit, |_| true), all[..limit]);
    }
    assert!(all.is_sorted_by(|one, other| one.score >= other.score));
}

#[test]
fn nothing_is_found_where_nothing_is() {
    let index = SearchIndex::build([], Arc::default(), &mut Analyser::default());
    assert!(
        index.is_empty() && index.find(&SearchQuery::parse("anything"), 5, |_| true).is_empty()
    );
    let mut corpus = Corpus::of_servers();
    let index = corpus.index(|_| true, SynonymGroups::default());
    assert!(index.find(&SearchQuery::parse("read a file"), 5, |_| false).is_empty());
}

#[test]
fn ten_thousand_tools_are_searched_quickly_enough() {
    let tools = (0..10_000).map(|number| {
        let description = "Finds the items of a list, and shows them to those who ask. ".repeat(4);
        let tool = json!({"name": format!("find_item_{number}"), "description": description});
        (format!("server{}", number % 50), tool)
    });
    let mut corpus = Corpus::new(tools);
    let index = corpus.index(|_| true, SynonymGroups::default());
    let before = clock::thread_cpu_time();
    let hits =
        index.find(&SearchQuery::parse("show the items of a list that I asked for"), 5, |_| true);
    // A release build takes about a thousandth of it.
    let taken = clock::thread_cpu_time().saturating_sub(before);
    assert!(taken < std::time::Duration::from_secs(2), "{taken:?}");
    assert_eq!(hits.len(), 5);
}

/// The vectors of the corpus of servers: each by the subject of its tool.
fn vectors_of(corpus: &Corpus, topics: &[(&str, [f32; 3])]) -> Vec<Option<Arc<TextVector>>> {
    let numbers = |key: &str| topics.iter().find(|(topic, _)| key.contains(topic)).map(|it| it.1);
    let made = corpus.keys.iter().map(|key| TextVector::from_numbers(&numbers(key)?));
    made.map(|vector| vector.map(Arc::new)).collect()
}

const TOPICS: [(&str, [f32; 3]); 3] =
    [("file", [1.0, 0.1, 0.0]), ("issue", [0.0, 1.0, 0.1]), ("branch", [0.1, 0.0, 1.0])];

#[test]
fn meaning_finds_tools_described_in_other_words() {
    let mut corpus = Corpus::of_servers();
    let index = corpus.index(|_| true, SynonymGroups::default());
    let documents = vectors_of(&corpus, &TOPICS);
    let vector = TextVector::from_numbers(&[0.0, 0.2, 1.0]).unwrap();
    let meaning = Some(QuestionMeaning { question: &vector, documents: &documents });
    let find = |question: &str| {
        let query = SearchQuery::parse(question);
        index.find_with_meaning(&query, meaning, 3, |_| true)
    };
    let key = |hit: &SearchHit| corpus.keys[hit.id.0].clone();
    // No definition has any of these words.
    let hits = find("zweiglein wegpusten");
    assert!(key(&hits[0]).contains("branch") && !hits[0].is_confident, "{hits:?}");
    // Documents with the words rank above documents with only the meaning.
    let hits = find("read the content of a file");
    assert_eq!(key(&hits[0]), "files/read_file");
    assert!(hits[0].is_confident);
    // A requested name is the answer, for any meaning.
    let hits = find("get_current_time");
    assert_eq!(key(&hits[0]), "clock/get_current_time");
    // A query without a request has no accidental answers.
    assert!(find("what can you do for me?").is_empty());
}

#[test]
fn vectors_that_tell_nothing_change_nothing() {
    let mut corpus = Corpus::of_servers();
    let index = corpus.index(|_| true, SynonymGroups::default());
    let query = SearchQuery::parse("delete an issue");
    let by_words = index.find(&query, 5, |_| true);
    let one = TextVector::from_numbers(&[1.0, 1.0]).map(Arc::new);
    let other = TextVector::from_numbers(&[1.0, 1.0, 1.0]).unwrap();
    for documents in [vec![None; 13], vec![one; 13], Vec::new()] {
        for question in [documents.first().cloned().flatten().as_deref(), Some(&other)] {
            let meaning =
                question.map(|question| QuestionMeaning { question, documents: &documents });
            assert_eq!(index.find_with_meaning(&query, meaning, 5, |_| true), by_words);
        }
    }
}

/// Words that documents and questions of property tests have in common.
const WORDS: [&str; 18] = [
    "create", "delete", "list", "get", "issue", "issues", "file", "folder", "branch", "repo",
    "message", "send", "pull", "request", "weather", "serach", "löschen", "検索",
];

fn some_words(most: usize) -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(&WORDS[..]), 0..most)
        .prop_map(|words| words.join(" "))
}

fn some_vector() -> impl Strategy<Value = Option<Arc<TextVector>>> {
    prop::option::weighted(0.8, prop::collection::vec(-1.0_f32..1.0, 4))
        .prop_map(|numbers| TextVector::from_numbers(&numbers?).map(Arc::new))
}

fn some_tool() -> impl Strategy<Value = (String, Value)> {
    (
        prop::sample::select(vec!["github", "files", "mail"]),
        some_words(4),
        some_words(12),
        some_words(3),
    )
        .prop_map(|(server, name, description, parameter)| {
            let tool = json!({
                "name": name.replace(' ', "_"),
                "description": description,
                "inputSchema": {"properties": {parameter: {"type": "string"}}},
            });
            (server.to_owned(), tool)
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn hidden_documents_change_nothing(
        tools in prop::collection::vec((some_tool(), any::<bool>(), some_vector()), 0..24),
        question in some_words(8),
        meant in some_vector(),
        limit in 1_usize..10,
    ) {
        let (shown, vectors): (Vec<_>, Vec<_>) =
            tools.iter().map(|(_, shown, vector)| (*shown, vector.clone())).unzip();
        let tools = tools.into_iter().map(|(tool, ..)| tool);
        let mut corpus = Corpus::new(tools);
        let whole = corpus.index(|_| true, SynonymGroups::default());
        let part = corpus.index(|place| shown[place], SynonymGroups::default());
        let places: Vec<_> = (0..shown.len()).filter(|place| shown[*place]).collect();
        let query = SearchQuery::parse(&question);
        let shown_vectors: Vec<_> = places.iter().map(|place| vectors[*place].clone()).collect();
        let meaning = |documents| Some(QuestionMeaning { question: meant.as_deref()?, documents });
        for (of_whole, of_part) in [(None, None), (meaning(&vectors), meaning(&shown_vectors))] {
            let filtered = whole.find_with_meaning(&query, of_whole, limit, |id| shown[id.0]);
            let mut alone = part.find_with_meaning(&query, of_part, limit, |_| true);
            for hit in &mut alone {
                hit.id = DocumentId(places[hit.id.0]);
            }
            // Scores are compared exactly.
            prop_assert_eq!(filtered, alone);
        }
    }

    #[test]
    fn any_text_is_analysed_and_searched(
        name in any::<String>(),
        description in any::<String>(),
        question in any::<String>(),
        raw in any::<String>(),
    ) {
        let schema = json!({"properties": {&*name: {"description": &*question}}});
        let tool = json!({"name": &*name, "description": description, "inputSchema": schema});
        let mut corpus = Corpus::new([("s".to_owned(), tool), ("t".to_owned(), json!({"name": "x"}))]);
        Analyser::default().analyse(raw.as_bytes());
        let index = corpus.index(|_| true, SynonymGroups::from_groups([[&*name, &*question]]));
        let hits = index.find(&SearchQuery::parse(&question), 5, |_| true);
        prop_assert!(hits.iter().all(|hit| hit.score.is_finite() && hit.score > 0.0));
    }

    #[test]
    fn words_of_letters_are_stemmed_whatever_they_are(word in "[a-z]{1,60}", other in "[a-zäöüéñа-яё' ]{0,80}") {
        let query = SearchQuery::parse(&format!("{word} {other}"));
        prop_assert!(query.words.len() <= MAX_QUERY_WORDS);
    }
}
