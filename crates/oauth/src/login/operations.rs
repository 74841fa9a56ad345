//! Audit records of links, logins and revocations.

use std::net::IpAddr;
use std::sync::Arc;

use trunkline_telemetry::audit::{
    AuditOperation, OperationActor, OperationOutcome, OperationRecord, RecordRoom,
};

use crate::fault::LoginFault;
use crate::grants::book::{GrantBook, GrantKey, GrantSlot};
use crate::grants::grant::GrantOwner;
use crate::login::ticket::{BrowserAnswer, LinkRequest};

impl GrantBook {
    /// Records that a link to a login at a server was issued to its owner, in the room that was
    /// reserved for it.
    pub(super) fn audit_link(&self, slot: &GrantSlot, room: Option<RecordRoom>) {
        let name = slot.key.owner.client_name().map(|name| &**name);
        let server = Some(slot.key.place.server.as_str());
        let record = OperationRecord {
            operation: AuditOperation::LoginLink { owner: name, server },
            actor: name.map_or(OperationActor::Gateway, OperationActor::Client),
            address: *slot.address.lock(),
            outcome: OperationOutcome::Ok,
            reason: None,
        };
        self.record_operation_in(room, &record);
    }

    /// Records that a link to an owner's logins was issued, in the room that was reserved for it.
    pub(super) fn audit_visit_link(&self, owner: &GrantOwner, request: LinkRequest) {
        let LinkRequest { address, room } = request;
        let name = owner.client_name().map(|name| &**name);
        let record = OperationRecord {
            operation: AuditOperation::LoginLink { owner: name, server: None },
            actor: name.map_or(OperationActor::Gateway, OperationActor::Client),
            address: Some(address),
            outcome: OperationOutcome::Ok,
            reason: None,
        };
        self.record_operation_in(room, &record);
    }

    /// Records the response to a login, and its outcome, in the room that was reserved for it. `slot`
    /// is missing if the response belongs to no login.
    pub(super) fn audit_login(
        &self,
        slot: Option<&Arc<GrantSlot>>,
        brought: BrowserAnswer<'_>,
        fault: Option<&LoginFault>,
    ) {
        let key = slot.map(|slot| &slot.key);
        let owner = key.and_then(|key| key.owner.client_name()).map(|name| &**name);
        let server = key.map(|key| key.place.server.as_str());
        let record = OperationRecord {
            operation: AuditOperation::Login { owner, server },
            actor: OperationActor::Visitor,
            address: brought.address,
            outcome: outcome_of(fault),
            reason: fault.map(LoginFault::label),
        };
        self.record_operation_in(brought.room, &record);
    }

    /// Records the revocation of a login, and its outcome.
    pub(crate) fn audit_revocation(
        &self,
        key: &GrantKey,
        actor: OperationActor<'_>,
        address: Option<IpAddr>,
        fault: Option<&LoginFault>,
    ) {
        let owner = key.owner.client_name().map(|name| &**name);
        let server = key.place.server.as_str();
        self.record_operation(&OperationRecord {
            operation: AuditOperation::Revocation { owner, server },
            actor,
            address,
            outcome: outcome_of(fault),
            reason: fault.map(LoginFault::label),
        });
    }
}

fn outcome_of(fault: Option<&LoginFault>) -> OperationOutcome {
    match fault {
        None => OperationOutcome::Ok,
        Some(LoginFault::OtherBrowser | LoginFault::Answer(_)) => OperationOutcome::Refused,
        Some(_) => OperationOutcome::Failed,
    }
}
