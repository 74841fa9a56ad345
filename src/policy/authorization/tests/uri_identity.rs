//! Generated URIs, catalogs, holds and rules: the gateway's decision about a read, compared with models of
//! the elements that servers serve for a URI.

mod model;
#[path = "../../../../tests/system/spelled_reads/respelled.rs"]
mod respelled;
mod world;

use std::num::NonZero;
use std::ops::AddAssign;
use std::thread;

use fastrand::Rng;

use model::{ServerModel, fold_authority, is_canonical, may_lead_out};
use world::ModelWorld;

use super::*;
use crate::catalog::{Catalog, UriMode};

/// Number of decisions about reads to compare.
const CASES: usize = 100_000;
/// Decisions in each world.
const CASES_OF_WORLD: usize = 100;
/// Limit of the differences in a message.
const SHOWN_DIFFERENCES: usize = 20;

/// A request, as a client sends it.
struct SpelledRequest {
    native: String,
    public: String,
    /// True if a result has revealed the URI to the client.
    is_released: bool,
}

/// The model's opinion of a request.
#[derive(Debug, PartialEq)]
enum ExpectedRead {
    /// This URI is sent.
    Sent(String),
    /// Nothing is sent.
    Refused,
    /// The documentation leaves it open: an unlisted URI in a spelling of its own.
    Open,
}

/// Counts of the gateway's decisions.
#[derive(Debug, Default)]
struct DecisionCounts {
    sent: usize,
    refused: usize,
    open: usize,
}

impl AddAssign for DecisionCounts {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.refused += other.refused;
        self.open += other.open;
    }
}

fn request(rng: &mut Rng, world: &ModelWorld) -> SpelledRequest {
    let native = world.request(rng);
    let is_prefixed = world.mode == UriMode::Prefix || world.has_neighbour || rng.bool();
    let public =
        if is_prefixed { format!("mcp://{}/{native}", world.name) } else { native.clone() };
    SpelledRequest { native, public, is_released: rng.u8(..3) == 0 }
}

/// Returns the model's opinion, from the elements that servers serve for the URI.
fn expect(world: &ModelWorld, request: &SpelledRequest) -> ExpectedRead {
    let native = &*request.native;
    if !world.is_guarded() {
        // Rules hide every URI that a server may read as another path.
        return if may_lead_out(native) {
            ExpectedRead::Refused
        } else {
            ExpectedRead::Sent(native.to_owned())
        };
    }
    if ServerModel::ALL.iter().any(|model| world.bars_resource(*model, native)) {
        return ExpectedRead::Refused;
    }
    if let Some(own) = world.find_listed(native) {
        // A held template refuses its URIs before listed URIs are looked up.
        let is_served = (is_canonical(own) || !world.may_be_barred_expansion(own))
            && !world.may_be_held_expansion(native);
        return if is_served { ExpectedRead::Sent(own.to_owned()) } else { ExpectedRead::Open };
    }
    if world.is_like_listed(native) {
        return ExpectedRead::Open;
    }
    let bars = |model: &ServerModel| world.bars_expansion(*model, native);
    if ServerModel::ALL.iter().any(bars) || may_lead_out(native) {
        return ExpectedRead::Refused;
    }
    if world.may_be_barred(native) {
        return ExpectedRead::Open;
    }
    let is_sent = request.is_released || (is_canonical(native) && world.shows_template_of(native));
    match (is_sent, is_canonical(native)) {
        (true, _) => ExpectedRead::Sent(native.to_owned()),
        // A template's text can be in another spelling than its expansions by clients.
        (false, true) if world.may_show_template_of(native) => ExpectedRead::Open,
        (false, _) => ExpectedRead::Refused,
    }
}

/// One generated world with the gateway's view of it.
struct WorldCheck {
    seed: u64,
    world: ModelWorld,
    counts: DecisionCounts,
    /// Decisions that differ from the model's.
    differences: Vec<String>,
}

impl WorldCheck {
    fn run(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let world = ModelWorld::generate(&mut rng);
        let catalog = world.catalog();
        let (counts, differences) = (DecisionCounts::default(), Vec::new());
        let mut check = Self { seed, world, counts, differences };
        for _ in 0..CASES_OF_WORLD {
            let request = request(&mut rng, &check.world);
            let found = find(&catalog, &check.world, &request);
            check.compare(&request, found.as_deref());
        }
        check
    }

    /// Compares a decision with the model's opinion, and the URI sent with the elements that
    /// servers serve for it.
    fn compare(&mut self, request: &SpelledRequest, found: Option<&str>) {
        let expected = expect(&self.world, request);
        match (&expected, found) {
            (ExpectedRead::Open, _) => self.counts.open += 1,
            (ExpectedRead::Sent(own), Some(found)) if own == found => self.counts.sent += 1,
            (ExpectedRead::Refused, None) => self.counts.refused += 1,
            _ => self.report(request, found, &format!("expected {expected:?}")),
        }
        let Some(sent) = found.filter(|_| self.world.is_guarded()) else { return };
        for model in ServerModel::ALL {
            if let Some(leaked) = self.world.serve_barred(model, sent) {
                let about = format!("{model:?} serves {leaked:?}");
                self.report(request, found, &about);
            }
        }
        if self.world.denies_prefix_of(sent) {
            self.report(request, found, "its beginning is denied");
        }
        let is_same = fold_authority(sent) == fold_authority(&request.native);
        if !is_same && !self.world.lists_as(sent, &request.native) {
            self.report(request, found, "another URI is sent");
        }
    }

    fn report(&mut self, request: &SpelledRequest, found: Option<&str>, about: &str) {
        let Self { seed, world, .. } = self;
        let SpelledRequest { public, is_released, .. } = request;
        self.differences.push(format!(
            "seed {seed}: {public:?}, {found:?}: {about} (released: {is_released})\n{world:#?}"
        ));
    }
}

/// Returns the native URI that the gateway sends for a request.
fn find(catalog: &Catalog, world: &ModelWorld, request: &SpelledRequest) -> Option<String> {
    let released = |name: &ServerName, uri: &str| {
        request.is_released && name.as_str() == world.name && uri == request.native
    };
    let origin = catalog.uris().find_origin_or_released(&request.public, &released)?;
    assert_eq!(origin.server.as_str(), world.name, "{:?}", request.public);
    Some(origin.native.to_string())
}

/// Checks every `step`th world from `first` on, and returns the first difference of each.
fn check_worlds(first: usize, step: usize) -> (DecisionCounts, Vec<String>) {
    let (mut counts, mut differences) = (DecisionCounts::default(), Vec::new());
    for seed in (first..CASES / CASES_OF_WORLD).step_by(step) {
        let check = WorldCheck::run(seed as u64);
        counts += check.counts;
        differences.extend(check.differences.into_iter().next());
    }
    (counts, differences)
}

#[test]
fn the_gateway_decides_about_the_element_that_the_official_servers_serve() {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let (mut counts, mut differences) = (DecisionCounts::default(), Vec::new());
    thread::scope(|scope| {
        let start = |first| scope.spawn(move || check_worlds(first, threads));
        let started: Vec<_> = (0..threads).map(start).collect();
        for one in started {
            let (some, different) = one.join().unwrap();
            counts += some;
            differences.extend(different);
        }
    });
    let worlds = differences.len();
    differences.truncate(SHOWN_DIFFERENCES);
    assert!(worlds == 0, "differences in {worlds} worlds\n{}", differences.join("\n"));
    // The models decide most requests, in both ways.
    let DecisionCounts { sent, refused, open } = counts;
    assert!(sent > CASES / 5 && refused > CASES / 5 && open < CASES / 5, "{counts:?}");
}
