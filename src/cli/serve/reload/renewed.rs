//! Judges certificates of a loaded configuration that replace those in use.

use std::path::PathBuf;

use jiff::Timestamp;

use crate::cli::serve::replicas::PeerConnections;
use crate::cli::serve::settings::{CertificateReport, judge_own, judge_peer};
use crate::config::LateFault;
use crate::listener::{Certificates, LiveSettings};

use super::loading::LoadedFiles;

/// Faults of certificates that are not in use yet.
#[derive(Default)]
pub(super) struct RenewalFaults {
    /// Faults for which the configuration is refused.
    pub(super) refused: Vec<LateFault>,
    /// Faults that the certificates in use have, too.
    pub(super) tolerated: Vec<LateFault>,
    /// The certificate files of the refused ones.
    pub(super) files: Vec<PathBuf>,
    /// Time at which all refused ones are valid.
    pub(super) valid_from: Option<Timestamp>,
}

/// Certificates of a loaded configuration, and their judgement.
struct RenewedCertificates<'a> {
    new: &'a Certificates,
    report: &'a CertificateReport,
    files: Vec<PathBuf>,
}

impl RenewalFaults {
    /// Compares the certificates for clients and those between replicas with the ones in use.
    pub(super) fn find(
        loaded: &LoadedFiles,
        clients: &LiveSettings,
        replicas: Option<&PeerConnections>,
    ) -> Self {
        let LoadedFiles { config, listeners, .. } = loaded;
        let mut found = Self::default();
        if let (Some(new), Some(tls)) = (&listeners.clients.tls, &config.gateway.tls) {
            let files = [&tls.cert, &tls.key].into_iter().chain(&tls.client_ca).cloned();
            let report = &listeners.certificates;
            let renewed = RenewedCertificates { new, report, files: files.collect() };
            let running = clients.load().tls.clone();
            found.compare(renewed, running, |running| judge_own(running, tls));
        }
        // Replicas keep to the choice between TLS and none.
        let running = replicas.and_then(PeerConnections::certificates);
        if let (Some(settings), Some(cluster), Some(running)) =
            (&listeners.replicas, &config.cluster, running)
            && let Some(new) = &settings.listener.tls
        {
            let files = [&cluster.cert, &cluster.key, &cluster.ca].into_iter().flatten().cloned();
            let report = &settings.certificates;
            let renewed = RenewedCertificates { new, report, files: files.collect() };
            found.compare(renewed, Some(running), |running| judge_peer(running, cluster));
        }
        found
    }

    /// Adds the faults of certificates that are not in use. Each of the files is compared with its
    /// predecessor.
    fn compare(
        &mut self,
        renewed: RenewedCertificates<'_>,
        running: Option<Certificates>,
        judge: impl Fn(&Certificates) -> CertificateReport,
    ) {
        let RenewedCertificates { new, report, files } = renewed;
        let is_in_use = running.as_ref().is_some_and(|running| new.has_certificates_of(running));
        if report.faults.is_empty() || is_in_use {
            return;
        }
        let before = running.map(|running| judge(&running).faults);
        let is_no_worse = before.is_some_and(|before| {
            report.faults.iter().all(|fault| before.iter().any(|earlier| earlier.key == fault.key))
        });
        if is_no_worse {
            self.tolerated.extend_from_slice(&report.faults);
        } else {
            self.refused.extend_from_slice(&report.faults);
            self.files.extend(files);
            self.valid_from = self.valid_from.max(report.valid_from);
        }
    }
}
