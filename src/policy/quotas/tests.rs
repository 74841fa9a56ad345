//! The ledger of one gateway, with the time as an argument.

use super::*;
use crate::config::CountUnit;

const DAY: Duration = Duration::from_hours(24);
const NOON: Duration = Duration::from_hours(20_000 * 24 + 12);

fn quota(limit: &str, holder: Option<&str>, most: u32) -> ChargedQuota {
    quota_per(limit, holder, most, CountUnit::Day)
}

fn quota_per(limit: &str, holder: Option<&str>, most: u32, unit: CountUnit) -> ChargedQuota {
    let setting = Quota { count: cost(most), unit };
    ChargedQuota { limit: limit.into(), holder: holder.map(str::to_owned), setting }
}

fn cost(cost: u32) -> NonZeroU32 {
    NonZeroU32::new(cost).unwrap()
}

/// Returns the wait that a refused call learns.
fn wait_of(charged: &Result<(), Failure>) -> Duration {
    let Err(Failure::OverLimit { retry_after, .. }) = charged else { panic!("{charged:?}") };
    *retry_after
}

#[test]
fn a_quota_is_refilled_at_midnight_and_not_before() {
    let ledger = QuotaLedger::default();
    let quotas = [quota("quota:client:ci", None, 3)];
    ledger.charge(&quotas, cost(2), NOON).unwrap();
    ledger.charge(&quotas, cost(1), NOON).unwrap();
    let late = NOON + (DAY / 2).saturating_sub(Duration::from_secs(1));
    let Err(Failure::OverLimit { limit, retry_after }) = ledger.charge(&quotas, cost(1), late)
    else {
        panic!("it is used up");
    };
    assert_eq!((limit.as_str(), retry_after), ("quota:client:ci", Duration::from_secs(1)));
    ledger.charge(&quotas, cost(3), late + retry_after).unwrap();
    // The clock is set back to the day before.
    assert!(ledger.charge(&quotas, cost(1), late).is_err());
}

#[test]
fn each_unit_has_its_window_and_its_wait() {
    for (unit, wait) in [
        (CountUnit::Second, Duration::from_millis(750)),
        (CountUnit::Minute, Duration::from_millis(59_750)),
        (CountUnit::Hour, Duration::from_millis(3_599_750)),
        (CountUnit::Day, Duration::from_millis(43_199_750)),
    ] {
        let ledger = QuotaLedger::default();
        let quotas = [quota_per("q", None, 2, unit)];
        let now = NOON + Duration::from_millis(250);
        ledger.charge(&quotas, cost(2), now).unwrap();
        assert_eq!(wait_of(&ledger.charge(&quotas, cost(1), now)), wait, "{unit:?}");
        assert_eq!(wait_of(&ledger.check(&quotas, cost(1), now)), wait, "{unit:?}");
        let level = ledger.levels(&quotas, cost(1), now).remove(0);
        assert_eq!((level.setting, level.remaining), (quotas[0].setting.to_string(), 0));
        let almost = now + wait.saturating_sub(Duration::from_millis(1));
        assert_eq!(wait_of(&ledger.charge(&quotas, cost(1), almost)), Duration::from_millis(1));
        assert_eq!(ledger.levels(&quotas, cost(1), now + wait)[0].remaining, 2, "{unit:?}");
        ledger.charge(&quotas, cost(2), now + wait).unwrap();
        assert!(ledger.charge(&quotas, cost(1), now + wait).is_err(), "{unit:?}");
    }
}

#[test]
fn a_quota_per_second_is_exact_in_every_second() {
    let ledger = QuotaLedger::default();
    let quotas = [quota_per("q", None, 3, CountUnit::Second)];
    for second in 0..20 {
        let calls = (0..10).map(|tenth| NOON + Duration::from_millis(second * 1000 + tenth * 100));
        let admitted = calls.filter(|now| ledger.charge(&quotas, cost(1), *now).is_ok()).count();
        assert_eq!(admitted, 3, "second {second}");
    }
}

#[test]
fn a_quota_with_another_unit_begins_without_a_count_and_ends_none() {
    let ledger = QuotaLedger::default();
    let [day, hour] =
        [CountUnit::Day, CountUnit::Hour].map(|unit| [quota_per("q", Some("ann"), 3, unit)]);
    ledger.charge(&day, cost(3), NOON).unwrap();
    ledger.charge(&hour, cost(2), NOON).unwrap();
    assert_eq!(ledger.levels(&hour, cost(1), NOON)[0].remaining, 1);
    assert_eq!(ledger.levels(&day, cost(1), NOON)[0].remaining, 0);
    // An hour later, only the quota of the hour is refilled.
    let later = NOON + Duration::from_hours(1);
    ledger.charge(&hour, cost(3), later).unwrap();
    assert!(ledger.charge(&day, cost(1), later).is_err());
    ledger.charge(&day, cost(3), NOON + DAY / 2).unwrap();
}

#[test]
fn a_clock_that_is_set_back_does_not_stop_a_short_quota_for_longer_than_the_step() {
    let ledger = QuotaLedger::default();
    let quotas = [quota_per("q", None, 1, CountUnit::Second)];
    ledger.charge(&quotas, cost(1), NOON).unwrap();
    let back = NOON.saturating_sub(Duration::from_secs(3));
    assert_eq!(wait_of(&ledger.charge(&quotas, cost(1), back)), Duration::from_secs(4));
    let far_back = NOON.saturating_sub(Duration::from_hours(1));
    ledger.charge(&quotas, cost(1), far_back).unwrap();
    assert!(ledger.charge(&quotas, cost(1), far_back).is_err());
}

#[test]
fn a_call_that_one_quota_refuses_is_charged_to_none() {
    let ledger = QuotaLedger::default();
    let wide = quota("wide", None, 3);
    let narrow = quota_per("narrow", None, 1, CountUnit::Minute);
    ledger.charge(&[wide.clone(), narrow.clone()], cost(1), NOON).unwrap();
    assert!(ledger.charge(&[wide.clone(), narrow], cost(1), NOON).is_err());
    ledger.charge(std::slice::from_ref(&wide), cost(2), NOON).unwrap();
    assert!(ledger.charge(&[wide], cost(1), NOON).is_err());
}

#[test]
fn a_check_charges_nothing() {
    let ledger = QuotaLedger::default();
    let quotas = [quota("q", None, 1)];
    for _ in 0..3 {
        ledger.check(&quotas, cost(1), NOON).unwrap();
    }
    assert!(ledger.check(&quotas, cost(2), NOON).is_err());
    ledger.charge(&quotas, cost(1), NOON).unwrap();
    assert!(ledger.charge(&quotas, cost(1), NOON).is_err());
    // Another day has begun, and the check is the first to see it.
    ledger.check(&quotas, cost(1), NOON + DAY).unwrap();
}

#[test]
fn callers_beyond_so_many_share_one_count() {
    let ledger = QuotaLedger::default();
    let of = |number: usize| {
        let unit = if number.is_multiple_of(2) { CountUnit::Day } else { CountUnit::Hour };
        [quota_per("q", Some(&number.to_string()), 1, unit)]
    };
    for number in 0..MAX_QUOTA_COUNTS {
        ledger.charge(&of(number), cost(1), NOON).unwrap();
    }
    ledger.charge(&of(MAX_QUOTA_COUNTS), cost(1), NOON).unwrap();
    assert!(ledger.charge(&of(MAX_QUOTA_COUNTS + 2), cost(1), NOON).is_err());
    let counts = ledger.counts.lock();
    let known: usize = counts.windows.values().map(|window| window.used.len()).sum();
    assert!(known <= MAX_QUOTA_COUNTS + 1, "{known}");
}
