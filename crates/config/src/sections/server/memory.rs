//! The memory bounds that all clients and servers share, and their reduction for a smaller machine.

use std::sync::Arc;

use crate::Config;

/// A bound that was reduced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReducedBound {
    /// The key of the setting.
    pub key: String,
    /// The configured value, in bytes.
    pub before: usize,
    /// The value that is used, in bytes.
    pub after: usize,
}

impl Config {
    /// Reduces the bounds of memory in proportion, so that together they are at most `most` bytes.
    /// A message that is rewritten is in memory more than once. Returns the settings that were
    /// reduced.
    pub fn fit_memory(&mut self, most: usize) -> Vec<ReducedBound> {
        let total = self
            .memory_bounds()
            .iter()
            .fold(0_usize, |sum, bound| sum.saturating_add(bound.most()));
        if total <= most {
            return Vec::new();
        }
        let scale = |value: usize| {
            let scaled = value as u128 * most as u128 / total.max(1) as u128;
            usize::try_from(scaled).unwrap_or(value)
        };
        let mut reduced = Vec::new();
        for bound in self.memory_bounds() {
            reduced.extend(reduce_bound(bound.key, bound.value, scale(*bound.value)));
        }
        let limits = &mut self.gateway.limits;
        // Leaves room for a second response.
        let response = limits.responses / 2;
        for server in &mut self.servers {
            if server.max_response > response {
                let server = Arc::make_mut(server);
                let key = format!("servers.{}.max_response", server.name);
                reduced.extend(reduce_bound(key, &mut server.max_response, response));
            }
        }
        limits.responses_each = limits.responses_each.min(limits.responses);
        limits.bodies_each = limits.bodies_each.min(limits.bodies);
        limits.unread_each = limits.unread_each.min(limits.unread);
        limits.replay = limits.replay.min(limits.replay_all);
        reduced
    }

    fn memory_bounds(&mut self) -> Vec<MemoryBound<'_>> {
        let limits = &mut self.gateway.limits;
        let mut bounds = vec![
            MemoryBound::new("gateway.limits.bodies", &mut limits.bodies).times(BODY_COPIES),
            MemoryBound::new("gateway.limits.responses", &mut limits.responses)
                .times(RESPONSE_COPIES),
            MemoryBound::new("gateway.limits.unread", &mut limits.unread),
            MemoryBound::new("gateway.limits.kept_results", &mut limits.kept_results),
            MemoryBound::new("gateway.limits.replay_all", &mut limits.replay_all),
            MemoryBound::new("audit.queue_size", &mut self.audit.queue_size),
            MemoryBound::new("events.queue_size", &mut self.events.queue_size),
        ];
        for server in &mut self.servers {
            let server = Arc::make_mut(server);
            let key = format!("servers.{}.read_cache", server.name);
            bounds.extend(server.read_cache.as_mut().map(|value| MemoryBound::new(key, value)));
        }
        bounds
    }
}

/// A setting that bounds memory.
struct MemoryBound<'a> {
    key: String,
    value: &'a mut usize,
    copies: usize,
}

impl<'a> MemoryBound<'a> {
    fn new(key: impl Into<String>, value: &'a mut usize) -> Self {
        Self { key: key.into(), value, copies: 1 }
    }

    /// The same setting, for messages that are in memory up to this many times.
    fn times(self, copies: usize) -> Self {
        Self { copies, ..self }
    }

    /// The most memory that the setting allows, in bytes.
    fn most(&self) -> usize {
        self.value.saturating_mul(self.copies)
    }
}

fn reduce_bound(key: String, value: &mut usize, to: usize) -> Option<ReducedBound> {
    let before = std::mem::replace(value, to);
    (to < before).then_some(ReducedBound { key, before, after: to })
}

/// A request body is received, and written for the server.
const BODY_COPIES: usize = 2;
/// A response is received, decoded, rewritten, and written for the client. With the results that are
/// shortened and kept, a group of 150 MB needs twice that: with four copies it reaches its limit.
const RESPONSE_COPIES: usize = 8;

#[cfg(test)]
mod tests {
    use super::MemoryBound;
    use crate::{Config, ConfigSource, SystemEnvironment};

    const SERVERS: &str = "[servers.a]\ncommand = \"a\"\n[servers.b]\ncommand = \"b\"\n\
                           read_cache = \"1GiB\"\nmax_response = \"1MiB\"\n";

    fn config(text: &str) -> Config {
        let bytes = text.as_bytes().to_vec();
        let source = ConfigSource { name: "gateway.toml".into(), folder: "/f".into(), bytes };
        Config::read(&source, &SystemEnvironment).unwrap()
    }

    fn sum(config: &mut Config) -> usize {
        config.memory_bounds().iter().map(MemoryBound::most).sum()
    }

    #[test]
    fn bounds_of_memory_together_fit_into_the_memory_that_there_is() {
        for most in [90 << 20, 10 << 20, 200 << 20, 300 << 20] {
            let mut config = config(SERVERS);
            let reduced = config.fit_memory(most);
            assert!(sum(&mut config) <= most, "{most}: {}", sum(&mut config));
            assert!(sum(&mut config) > most / 2, "no more than needed: {most}");
            let limits = &config.gateway.limits;
            assert!(limits.bodies_each <= limits.bodies && limits.unread_each <= limits.unread);
            assert!(limits.responses_each <= limits.responses);
            let largest = config.servers.iter().map(|server| server.max_response).max();
            assert!(largest.unwrap() <= limits.responses / 2);
            let keys: Vec<_> = reduced.iter().map(|bound| bound.key.as_str()).collect();
            for key in ["gateway.limits.bodies", "servers.b.read_cache", "servers.a.max_response"] {
                assert!(keys.contains(&key), "{key} in {keys:?}");
            }
            assert!(reduced.iter().all(|bound| bound.after < bound.before));
        }
    }

    #[test]
    fn bounds_that_fit_stay_as_they_are() {
        let mut fitting = config(SERVERS);
        assert!(fitting.fit_memory(8 << 30).is_empty());
        assert_eq!(fitting, config(SERVERS));
    }
}
