//! Seccomp: system calls that fail from now on, always or with certain arguments.
//!
//! A refused call never kills the process. It fails with an error that programs can recover from.
//! Each errno needs a filter of its own. The kernel sees only the lower half of an `int` argument,
//! so the rules test only that half.

mod clone;
mod files;
mod numbers;
mod processes;
mod sockets;

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter, sock_filter,
};

use super::policy::{CallGroup, SandboxError, SandboxPolicy};

/// Makes the system calls that a policy refuses fail in this process and all that it runs.
pub(super) fn refuse_syscalls(policy: &SandboxPolicy) -> Result<(), SandboxError> {
    let mut refused = RefusedCalls::default();
    for name in &policy.denied {
        let number = numbers::find_number(name)
            .ok_or_else(|| SandboxError::UnknownCall { name: name.clone() })?;
        refused.refuse(libc::EPERM, number);
    }
    if policy.denied.iter().any(|name| name == "unshare") {
        clone::refuse_namespaces(&mut refused)?;
    }
    if let Some(allowed) = policy.sockets {
        sockets::refuse_others(allowed, &mut refused)?;
    }
    for group in &policy.groups {
        match group {
            CallGroup::OtherProcesses => processes::refuse_other_processes(&mut refused)?,
            CallGroup::Owners => files::refuse_owners(&mut refused)?,
            CallGroup::Modes => files::refuse_modes(&mut refused),
            CallGroup::ExecutableMemory => files::refuse_executable_memory(&mut refused)?,
        }
    }
    refused.install()
}

/// Rules by errno and by the number of the system call. A call without rules always fails.
#[derive(Default)]
struct RefusedCalls(BTreeMap<i32, BTreeMap<i64, Vec<SeccompRule>>>);

impl RefusedCalls {
    /// Refuses a call with any arguments.
    fn refuse(&mut self, errno: i32, call: c_long) {
        self.0.entry(errno).or_default().insert(call, Vec::new());
    }

    /// Refuses a call if all these conditions hold. Several rules for one call are alternatives.
    fn refuse_if(
        &mut self,
        errno: i32,
        call: c_long,
        conditions: &[ArgumentTest],
    ) -> Result<(), SandboxError> {
        let conditions = conditions.iter().map(ArgumentTest::compile).collect::<Result<_, _>>()?;
        let rule = SeccompRule::new(conditions).map_err(unfiltered)?;
        self.0.entry(errno).or_default().entry(call).or_default().push(rule);
        Ok(())
    }

    fn install(self) -> Result<(), SandboxError> {
        if self.0.is_empty() {
            return Ok(());
        }
        let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(unfiltered)?;
        for (errno, rules) in self.0 {
            let refusal = SeccompAction::Errno(errno.unsigned_abs());
            let filter = SeccompFilter::new(rules, SeccompAction::Allow, refusal, arch)
                .map_err(unfiltered)?;
            let program: BpfProgram = filter.try_into().map_err(unfiltered)?;
            apply_filter(&program).map_err(unfiltered)?;
        }
        if cfg!(target_arch = "x86_64") {
            apply_filter(&X32_REFUSED).map_err(unfiltered)?;
        }
        Ok(())
    }
}

/// A condition for the lower half of an argument.
struct ArgumentTest {
    index: u8,
    operator: SeccompCmpOp,
    value: u64,
}

impl ArgumentTest {
    fn is(index: u8, value: i32) -> Self {
        Self { index, operator: SeccompCmpOp::Eq, value: u64::from(value.cast_unsigned()) }
    }

    fn is_not(index: u8, value: i32) -> Self {
        Self { index, operator: SeccompCmpOp::Ne, value: u64::from(value.cast_unsigned()) }
    }

    /// Tests that the bits of `mask` equal those of `value`.
    fn masked(index: u8, mask: i32, value: i32) -> Self {
        let operator = SeccompCmpOp::MaskedEq(u64::from(mask.cast_unsigned()));
        Self { index, operator, value: u64::from(value.cast_unsigned()) }
    }

    fn compile(&self) -> Result<SeccompCondition, SandboxError> {
        let Self { index, operator, value } = self;
        SeccompCondition::new(*index, SeccompCmpArgLen::Dword, operator.clone(), *value)
            .map_err(unfiltered)
    }
}

fn unfiltered(cause: impl std::error::Error + Send + Sync + 'static) -> SandboxError {
    SandboxError::Seccomp(Box::new(cause))
}

/// Fails every call of the x32 convention, as on a kernel without it. x32 numbers have this bit.
/// Some calls have a separate x32 number.
const X32_REFUSED: [sock_filter; 4] = [
    sock_filter { code: LOAD_WORD, jt: 0, jf: 0, k: 0 },
    sock_filter { code: JUMP_IF_AT_LEAST, jt: 0, jf: 1, k: 0x4000_0000 },
    sock_filter {
        code: RETURN_INSTRUCTION,
        jt: 0,
        jf: 0,
        k: libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned(),
    },
    sock_filter { code: RETURN_INSTRUCTION, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW },
];
/// Loads four bytes of a call's record. The first four are the call's number.
const LOAD_WORD: u16 = 0x20;
const JUMP_IF_AT_LEAST: u16 = 0x35;
const RETURN_INSTRUCTION: u16 = 0x06;
