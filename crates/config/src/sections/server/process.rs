//! Kinds of values for child processes: programs and variables.

use crate::faults::problem::SettingFault;
use crate::reader::ConfigReader;
use crate::reader::setting::TextSetting;
use crate::reader::values::substitute::is_env_name;

/// A program to run. Children must not depend on where the gateway was started:
/// a path starts at the file's folder, and `trunkline` is the running program.
pub(crate) struct ProgramSetting;

impl TextSetting for ProgramSetting {
    type Value = String;
    const WORD: &'static str = "program";
    const EXAMPLE: &'static str = "\"npx\"";

    fn parse_text(text: &str, reader: &ConfigReader<'_>) -> Result<Option<String>, SettingFault> {
        if text.is_empty() || text.contains('\0') {
            return Ok(None);
        }
        let own = || {
            reader
                .surroundings
                .executable()
                .and_then(|path| path.into_os_string().into_string().ok())
        };
        Ok(match text {
            "trunkline" => own().or_else(|| Some(text.to_owned())),
            path if path.contains('/') => {
                reader.resolve_path(path).into_os_string().into_string().ok()
            }
            name => Some(name.to_owned()),
        })
    }
}

/// The name of a variable, or `NAME_*` for all with that prefix.
pub(crate) struct VariableSetting;

impl TextSetting for VariableSetting {
    type Value = String;
    const WORD: &'static str = "variable";
    const EXAMPLE: &'static str = "\"AWS_REGION\"";
    const RULE: &'static str = "a name, or the beginning of names and a star";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<String>, SettingFault> {
        // A star alone would pass every credential of the gateway to the child.
        let stem = text.strip_suffix('*').unwrap_or(text);
        Ok(is_env_name(stem).then(|| text.to_owned()))
    }
}
