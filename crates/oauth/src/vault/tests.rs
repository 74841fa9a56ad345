use super::*;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use tempfile::TempDir;

const OLD: &str = "an old key that has more than 32 bytes in it";
const NEW: &str = "a new key that has more than 32 bytes in it, too";

fn keys(texts: &[&str]) -> Vec<Secret> {
    texts.iter().map(|text| Secret::new((*text).to_owned())).collect()
}

fn name(owner: &str) -> RowName {
    RowName::new(["grant", "s", "https://s.test/mcp", owner])
}

fn open(folder: &TempDir, texts: &[&str]) -> Result<Arc<Vault>, VaultError> {
    Vault::open(&folder.path().join("v"), &keys(texts)).map(Arc::new)
}

fn bytes(folder: &TempDir) -> Vec<u8> {
    fs::read(folder.path().join("v")).unwrap()
}

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// The row as it is in the file.
fn sealed(folder: &TempDir, owner: &str) -> Vec<u8> {
    let file = VaultFile::new(&folder.path().join("v"));
    file.read_row(&name(owner).to_text()).unwrap().unwrap()
}

#[tokio::test]
async fn rows_outlive_the_process_and_are_sealed() {
    let folder = TempDir::new().unwrap();
    let vault = open(&folder, &[OLD]).unwrap();
    vault.write_row(name("ann"), b"the-token-of-ann".to_vec()).await.unwrap();
    vault.write_row(name("bob"), b"first".to_vec()).await.unwrap();
    vault.write_row(name("bob"), b"second".to_vec()).await.unwrap();
    drop(vault);
    let vault = open(&folder, &[OLD]).unwrap();
    let mut rows = vault.read_rows().await.unwrap();
    rows.sort_by_key(|row| row.name.to_text());
    let rows: Vec<_> = rows.iter().map(|row| (row.name.parts()[3], &*row.value)).collect();
    assert_eq!(rows, [("ann", &b"the-token-of-ann"[..]), ("bob", b"second")]);
    assert_eq!(vault.read_row(name("bob")).await.unwrap().unwrap(), b"second");
    assert!(vault.read_row(name("eve")).await.unwrap().is_none());
    let file = bytes(&folder);
    assert!(!holds(&file, b"the-token-of-ann") && !holds(&file, OLD.as_bytes()));
    let mode = fs::metadata(folder.path().join("v")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn rows_deleted_by_another_process_are_noticed_and_not_written_again() {
    let folder = TempDir::new().unwrap();
    let (own, other) = (open(&folder, &[OLD]).unwrap(), open(&folder, &[OLD]).unwrap());
    own.write_row(name("ann"), b"1".to_vec()).await.unwrap();
    own.write_row(name("bob"), b"1".to_vec()).await.unwrap();
    assert_eq!(own.read_rows().await.unwrap().len(), 2);
    assert!(!own.was_changed());
    assert!(own.replace_row(name("ann"), b"2".to_vec()).await.unwrap());
    other.delete_row(name("ann")).await.unwrap();
    // An operation of this process in between does not hide the other's change.
    own.write_row(name("bob"), b"2".to_vec()).await.unwrap();
    assert!(own.was_changed());
    assert!(!own.replace_row(name("ann"), b"3".to_vec()).await.unwrap());
    assert!(own.read_row(name("ann")).await.unwrap().is_none());
    assert_eq!(own.read_rows().await.unwrap().len(), 1);
    assert!(!own.was_changed());
}

#[tokio::test]
async fn a_row_opens_for_its_own_owner_and_server_only() {
    let folder = TempDir::new().unwrap();
    let vault = open(&folder, &[OLD]).unwrap();
    vault.write_row(name("ann"), b"of ann".to_vec()).await.unwrap();
    let of_ann = sealed(&folder, "ann");
    vault.file.write_row(&name("eve").to_text(), &of_ann).unwrap();
    let moved = vault.read_row(name("eve")).await.unwrap_err();
    assert!(matches!(moved.fault, VaultFault::Sealed { .. }), "{moved:?}");
    let mut changed = of_ann;
    *changed.last_mut().unwrap() ^= 1;
    vault.file.write_row(&name("ann").to_text(), &changed).unwrap();
    assert!(vault.read_row(name("ann")).await.is_err());
}

#[tokio::test]
async fn a_new_key_seals_all_rows_anew_and_the_old_one_is_not_needed_any_more() {
    let folder = TempDir::new().unwrap();
    let vault = open(&folder, &[OLD]).unwrap();
    vault.write_row(name("ann"), b"of ann".to_vec()).await.unwrap();
    let before = sealed(&folder, "ann");
    drop(vault);
    // The old key is still needed, and nothing is lost without it.
    let refused = open(&folder, &[NEW]).unwrap_err();
    let told = trunkline_core::text::error_chain(&refused);
    assert!(told.contains("vault.keys") && told.contains("ann") && told.contains("/v "), "{told}");
    let vault = open(&folder, &[NEW, OLD]).unwrap();
    assert_eq!(vault.read_row(name("ann")).await.unwrap().unwrap(), b"of ann");
    drop(vault);
    assert!(!holds(&bytes(&folder), &before), "what the old key opens is gone");
    let vault = open(&folder, &[NEW]).unwrap();
    assert_eq!(vault.read_row(name("ann")).await.unwrap().unwrap(), b"of ann");
    assert!(open(&folder, &[OLD]).is_err());
}

#[tokio::test]
async fn a_deleted_row_is_gone_from_the_file() {
    let folder = TempDir::new().unwrap();
    let vault = open(&folder, &[OLD]).unwrap();
    vault.write_row(name("ann"), b"of ann".to_vec()).await.unwrap();
    vault.write_row(name("bob"), b"of bob".to_vec()).await.unwrap();
    let of_ann = sealed(&folder, "ann");
    assert!(holds(&bytes(&folder), &of_ann));
    vault.delete_row(name("ann")).await.unwrap();
    assert!(!holds(&bytes(&folder), &of_ann));
    assert!(!holds(&bytes(&folder), b"ann"), "nor its name");
    assert_eq!(vault.read_rows().await.unwrap().len(), 1);
    vault.delete_row(name("nobody")).await.unwrap();
}

#[tokio::test]
async fn a_damaged_file_is_an_error_with_its_path_and_stays_as_it_is() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("v");
    drop(open(&folder, &[OLD]).unwrap().write_row(name("ann"), vec![7; 5000]).await);
    let whole = bytes(&folder);
    let cut = &whole[..whole.len() / 2];
    let mut changed = whole.clone();
    changed[64..4096].fill(0xa5);
    for content in [&b"not a vault at all"[..], &[0; 10_000], cut, &changed] {
        fs::write(&path, content).unwrap();
        let refused = open(&folder, &[OLD]).unwrap_err();
        let told = trunkline_core::text::error_chain(&refused);
        assert!(told.contains(path.to_str().unwrap()), "{told}");
        assert!(matches!(refused.fault, VaultFault::Damaged { .. }), "{refused:?}");
    }
}

#[tokio::test]
async fn a_draft_of_a_process_that_was_killed_is_not_in_the_way() {
    let folder = TempDir::new().unwrap();
    let vault = open(&folder, &[OLD]).unwrap();
    vault.write_row(name("ann"), b"of ann".to_vec()).await.unwrap();
    fs::write(folder.path().join("v.new"), "half of a file").unwrap();
    vault.delete_row(name("ann")).await.unwrap();
    assert!(vault.read_rows().await.unwrap().is_empty());
    assert!(!folder.path().join("v.new").exists());
}

#[test]
fn a_file_that_others_could_have_written_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("v");
    fs::write(&path, "").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(matches!(open(&folder, &[OLD]).unwrap_err().fault, VaultFault::Foreign));
    fs::remove_file(&path).unwrap();
    symlink(folder.path().join("elsewhere"), &path).unwrap();
    assert!(matches!(open(&folder, &[OLD]).unwrap_err().fault, VaultFault::Foreign));
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let refused = open(&folder, &[OLD]).unwrap_err();
    assert!(trunkline_core::text::error_chain(&refused).contains("directory"), "{refused:?}");
}

#[tokio::test]
async fn another_process_has_its_turn_and_one_that_never_ends_is_named() {
    let folder = TempDir::new().unwrap();
    let vault = open(&folder, &[OLD]).unwrap();
    let other = open(&folder, &[OLD]).unwrap();
    let writes = (0..20).map(|at| {
        let vault = if at % 2 == 0 { &vault } else { &other };
        let vault = Arc::clone(vault);
        async move { vault.write_row(name(&at.to_string()), vec![at]).await }
    });
    for written in futures_util::future::join_all(writes).await {
        written.unwrap();
    }
    assert_eq!(vault.read_rows().await.unwrap().len(), 20);
    assert!(!vault.was_changed());
    // It has not read the rows of the first process.
    assert!(other.was_changed());
    assert_eq!(other.read_rows().await.unwrap().len(), 20);
    other.write_row(name("x"), vec![1]).await.unwrap();
    assert!(vault.was_changed() && !other.was_changed());
    let _turn = other.file.lock().unwrap();
    let refused = vault.read_rows().await.err().unwrap();
    let told = trunkline_core::text::error_chain(&refused);
    assert!(told.contains("another process") && told.contains("/v "), "{told}");
}

#[tokio::test]
async fn too_large_a_row_is_refused() {
    let folder = TempDir::new().unwrap();
    let vault = open(&folder, &[OLD]).unwrap();
    let refused = vault.write_row(name("ann"), vec![0; 1 << 20]).await.unwrap_err();
    assert!(matches!(refused.fault, VaultFault::TooLarge { .. }), "{refused:?}");
    assert!(vault.read_rows().await.unwrap().is_empty());
}

#[test]
fn a_row_that_was_sealed_by_an_earlier_version_is_opened() {
    let sealed = data_encoding::HEXLOWER.decode(SEALED_ROW.as_bytes()).unwrap();
    let vault_keys = seal::VaultKeys::new(&keys(&[NEW, OLD])).unwrap();
    assert_eq!(vault_keys.open("a row", &sealed).unwrap(), b"a token");
}

/// The row `a row`, sealed with [`OLD`] as the version before the common sealer did.
const SEALED_ROW: &str =
    "0142e487e9e9dec370a2195d8fbf7570cba69a268ad30b4b38a90bbd2288b627ae801d54075e67d890fa2d13";
