use std::sync::Arc;

use super::test_records::TestRecords;
use super::*;

const PLACE: RecordPlace<'static> = RecordPlace { kind: SharedRecordKind::Grant, name: "ann" };

/// Appends a byte.
fn append(byte: u8) -> impl Fn(Option<&SharedRecord>) -> Result<(RecordEdit, u8), SharingFault> {
    move |found| {
        let mut value = found.map(|found| found.value.clone()).unwrap_or_default();
        value.push(byte);
        Ok((RecordEdit::Write { value, lifetime: None }, byte))
    }
}

type EditOutcome = Result<(RecordEdit, ()), SharingFault>;

const REMOVE_ALL: fn(Option<&SharedRecord>) -> EditOutcome = |_| Ok((RecordEdit::Remove, ()));

#[tokio::test]
async fn edits_at_once_are_all_kept() {
    let records: Arc<dyn SharedRecords> = Arc::new(TestRecords::default());
    let (a, b, c) = tokio::join!(
        records.edit(PLACE, append(b'a')),
        records.edit(PLACE, append(b'b')),
        records.edit(PLACE, append(b'c')),
    );
    assert_eq!([a, b, c].map(|edited| edited.unwrap().1), *b"abc");
    let mut stored = records.read(PLACE).await.unwrap().unwrap().value;
    stored.sort_unstable();
    assert_eq!(stored, b"abc");
}

#[tokio::test]
async fn an_edit_returns_the_record_that_the_store_has_then() {
    let records: Arc<dyn SharedRecords> = Arc::new(TestRecords::default());
    assert_eq!(records.edit(PLACE, REMOVE_ALL).await.unwrap(), (None, ()));
    let (written, _) = records.edit(PLACE, append(b'a')).await.unwrap();
    assert_eq!(written, records.read(PLACE).await.unwrap());
    let keep =
        |found: Option<&SharedRecord>| Ok::<_, SharingFault>((RecordEdit::Keep, found.cloned()));
    assert_eq!(records.edit(PLACE, keep).await.unwrap(), (written.clone(), written));
    assert_eq!(records.edit(PLACE, REMOVE_ALL).await.unwrap(), (None, ()));
    assert_eq!(records.read(PLACE).await.unwrap(), None);
}

/// Records that another replica changes after each reading.
#[derive(Debug, Default)]
struct BusyRecords(TestRecords);

#[async_trait]
impl SharedRecords for BusyRecords {
    async fn read(&self, place: RecordPlace<'_>) -> Result<Option<SharedRecord>, SharingFault> {
        let found = self.0.read(place).await?;
        self.0.write(place, found.as_ref(), NewRecord { value: b"other", lifetime: None }).await?;
        Ok(found)
    }

    async fn write(
        &self,
        place: RecordPlace<'_>,
        expected: Option<&SharedRecord>,
        new: NewRecord<'_>,
    ) -> Result<Option<SharedRecord>, SharingFault> {
        self.0.write(place, expected, new).await
    }

    async fn remove(
        &self,
        place: RecordPlace<'_>,
        expected: &SharedRecord,
    ) -> Result<bool, SharingFault> {
        self.0.remove(place, expected).await
    }
}

#[tokio::test]
async fn edits_of_a_record_that_never_rests_end() {
    let records: Arc<dyn SharedRecords> = Arc::new(BusyRecords::default());
    assert_eq!(records.edit(PLACE, append(b'a')).await, Err(SharingFault::Busy));
    assert_eq!(records.edit(PLACE, REMOVE_ALL).await, Err(SharingFault::Busy));
}
