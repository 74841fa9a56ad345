//! Interceptors: services of the operator that validate or change calls before a server sees them,
//! and the server's messages before a client does.
//!
//! A call passes those of its server and then those of its profile, in the order of the
//! configuration. Each receives the method, the server's own name or URI and the arguments, or a
//! message of the server. None receives a header, a key or the `_meta` of a client. Changed
//! arguments are checked like those of a client.

mod answers;
mod message;
mod notices;
mod reply;
mod service;

pub use notices::NoticeTreatment;
pub use reply::ReplyInterceptors;

use std::sync::Arc;

use parking_lot::Mutex;

use crate::call::{
    Call, Context, DecidingRule, Failure, InterceptorFault, InterceptorOutageError,
    InterceptorRefusalError, Named, ProfileName, ServerName,
};
use crate::clock;
use crate::config::{
    Config, InterceptedPhase, InterceptorConfig, InterceptorFailure, InterceptorMode,
    InterceptorName,
};
use crate::mcp::Method;
use crate::policy::target::CallTarget;

use message::{Intercepted, SeenMessage, Verdict};
use service::InterceptorService;

/// All interceptors in use: they outlive snapshots, with their connections and breakers.
#[derive(Debug, Default)]
pub(crate) struct InterceptorRegistry(Mutex<Vec<std::sync::Weak<InterceptorService>>>);

/// The interceptors of a configuration.
#[derive(Debug)]
pub(crate) struct Interceptors {
    servers: Named<ServerName, Vec<Arc<InterceptorService>>>,
    profiles: Named<ProfileName, Vec<Arc<InterceptorService>>>,
}

impl InterceptorRegistry {
    /// Returns the interceptors of a configuration; `None` if it uses none.
    pub(super) fn interceptors(&self, config: &Config) -> Option<Interceptors> {
        let mut known = self.0.lock();
        known.retain(|held| held.strong_count() > 0);
        let mut find = |config: &InterceptorConfig| {
            let held = known.iter().filter_map(std::sync::Weak::upgrade);
            let mut held = held.filter(|service| service.config == *config);
            held.next().unwrap_or_else(|| {
                let new = Arc::new(InterceptorService::new(config.clone()));
                known.push(Arc::downgrade(&new));
                new
            })
        };
        let services: Vec<_> = config.interceptors.iter().map(&mut find).collect();
        let named = |names: &[InterceptorName]| -> Vec<_> {
            let of = |name: &InterceptorName| {
                services.iter().find(|it| it.config.name == *name).cloned()
            };
            names.iter().filter_map(of).collect()
        };
        let servers = config.servers.iter().filter(|server| !server.interceptors.is_empty());
        let profiles = config.profiles.iter().filter(|profile| !profile.interceptors.is_empty());
        let all = Interceptors {
            servers: servers.map(|it| (it.name.clone(), named(&it.interceptors))).collect(),
            profiles: profiles.map(|it| (it.name.clone(), named(&it.interceptors))).collect(),
        };
        (!all.servers.is_empty() || !all.profiles.is_empty()).then_some(all)
    }
}

impl Interceptors {
    /// Returns the interceptors of a server and of the client's profile, each one once.
    fn find(&self, context: &Context, server: &ServerName) -> Vec<Arc<InterceptorService>> {
        let of_server = self.servers.get(server).into_iter().flatten();
        let of_profile = self.profiles.get(context.endpoint.profile()).into_iter().flatten();
        let mut found: Vec<Arc<InterceptorService>> = Vec::new();
        for service in of_server.chain(of_profile) {
            if !found.iter().any(|other| Arc::ptr_eq(other, service)) {
                found.push(Arc::clone(service));
            }
        }
        found
    }

    fn find_for_call(&self, call: &Call, target: &CallTarget) -> Vec<Arc<InterceptorService>> {
        let mut services = self.find(&call.context, &target.server);
        services.retain(|service| service.sees(&call.method, InterceptedPhase::Request));
        services
    }

    /// Returns true if an interceptor sees a call before its server does.
    pub(super) fn concern_call(&self, call: &Call, target: &CallTarget) -> bool {
        !self.find_for_call(call, target).is_empty()
    }

    /// Passes a call through the interceptors. Returns the new arguments if one has changed them.
    ///
    /// # Errors
    /// [`Failure::Intercepted`] and [`Failure::InterceptorDown`].
    pub(super) async fn intercept_call(
        &self,
        call: &Call,
        target: &CallTarget,
    ) -> Result<Option<Vec<u8>>, Failure> {
        let services = self.find_for_call(call, target);
        if services.is_empty() {
            return Ok(None);
        }
        let mut seen = Intercepted::of_call(call, target);
        let mut is_changed = false;
        for service in services {
            match decide(&service, &seen, None, &call.context).await? {
                Verdict::Valid => {}
                Verdict::Refused { reason } => return Err(refusal(&service, reason)),
                Verdict::Changed { payload } => {
                    let changed = seen.take_arguments(&payload);
                    is_changed |= settle(&service, changed)?.is_some();
                }
            }
        }
        Ok(if is_changed { seen.arguments() } else { None })
    }

    /// Returns the interceptors of the messages that the server of a call sends; `None` if there
    /// are none.
    pub(super) fn for_call(
        &self,
        call: &Call,
        target: &CallTarget,
    ) -> Option<Arc<ReplyInterceptors>> {
        let services = self.find(&call.context, &target.server);
        let method = Some(&call.method);
        let about = || Intercepted::of_call(call, target);
        ReplyInterceptors::choose(services, method, about, &call.context)
    }

    /// Returns the interceptors of the answer to a request that is not a call; `None` if there are
    /// none.
    pub(super) fn for_request(
        &self,
        context: &Context,
        server: &ServerName,
        method: &Method,
    ) -> Option<Arc<ReplyInterceptors>> {
        let about = || Intercepted::outside(server, method.as_str());
        ReplyInterceptors::choose(self.find(context, server), Some(method), about, context)
    }

    /// Returns the interceptors of the messages that a server sends outside of calls; `None` if
    /// there are none.
    pub(super) fn for_server(
        &self,
        context: &Context,
        server: &ServerName,
    ) -> Option<Arc<ReplyInterceptors>> {
        let about = || Intercepted::outside(server, "");
        ReplyInterceptors::choose(self.find(context, server), None, about, context)
    }
}

/// Asks one interceptor. Logs its answers and failures. In audit mode it never objects.
async fn decide(
    service: &InterceptorService,
    seen: &Intercepted,
    message: Option<&SeenMessage>,
    context: &Context,
) -> Result<Verdict, Failure> {
    let name = service.config.name.as_str();
    let asked = service.ask(seen, message, context, clock::now()).await;
    let verdict = match asked {
        Ok(verdict) => verdict,
        Err(fault) => return settle(service, Err(fault)).map(|_: Option<()>| Verdict::Valid),
    };
    let is_enforced = service.config.mode == InterceptorMode::Enforce;
    let server = seen.server();
    match &verdict {
        Verdict::Valid => {}
        Verdict::Refused { reason } => {
            tracing::info!(interceptor = name, server, is_enforced, reason, "a call is refused");
            if is_enforced {
                context.decided_by(|| rule(name));
            }
        }
        Verdict::Changed { .. } => {
            tracing::info!(interceptor = name, server, is_enforced, "a call is changed");
            if is_enforced {
                context.changed_by(|| rule(name));
            }
        }
    }
    Ok(if is_enforced { verdict } else { Verdict::Valid })
}

/// Returns an interceptor's answer. After a fault, the call fails or, if so configured, continues
/// without it (`None`).
fn settle<T>(
    service: &InterceptorService,
    answered: Result<T, InterceptorFault>,
) -> Result<Option<T>, Failure> {
    let fault = match answered {
        Ok(answer) => return Ok(Some(answer)),
        Err(fault) => fault,
    };
    let InterceptorConfig { name, fail, mode, .. } = &service.config;
    // Each call would repeat the line.
    let text = format!("an interceptor has failed: {fault}");
    if let Some(line) = service.faults.note_about(name.as_str(), &text) {
        tracing::warn!(interceptor = %name, fail = fail.as_str(), "{line}");
    }
    if *fail == InterceptorFailure::Open || *mode == InterceptorMode::Audit {
        return Ok(None);
    }
    Err(InterceptorOutageError { interceptor: name.to_string(), fault }.into())
}

fn refusal(service: &InterceptorService, reason: String) -> Failure {
    InterceptorRefusalError { interceptor: service.config.name.to_string(), reason }.into()
}

/// Returns the rule in the audit log.
fn rule(name: &str) -> DecidingRule {
    DecidingRule { check: "interceptor", rule: Some(name.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::captured_log::CapturedLog;
    use crate::config::{ConfigSource, SystemEnvironment};

    #[test]
    fn a_fault_that_each_call_repeats_is_logged_once_a_minute() {
        let text = "[interceptors.check]\nurl = \"http://127.0.0.1:9/\"\nfail = \"open\"\n";
        let bytes = text.as_bytes().to_vec();
        let source = ConfigSource { name: "gateway.toml".into(), folder: ".".into(), bytes };
        let config = Config::read(&source, &SystemEnvironment).unwrap_or_else(|it| panic!("{it}"));
        let service = InterceptorService::new(config.interceptors[0].clone());
        let log = CapturedLog::start();
        for _ in 0..20 {
            let settled = settle::<()>(&service, Err(InterceptorFault::Unreachable));
            assert!(settled.unwrap().is_none());
        }
        let text = log.text();
        assert_eq!(
            text.matches("an interceptor has failed: it cannot be reached").count(),
            1,
            "{text}"
        );
    }
}
