//! The two macros that declare the configuration. One place has a field, its key, kind, default and
//! description; the struct, the reader, the docs page and the JSON Schema are generated from it.

/// Declares a table of the configuration.
///
/// A setting is `"key" => field: Type as Kind = default`, where the key is the
/// field's name unless given, the kind (a [`Setting`](super::setting::Setting))
/// is the type unless given, and the default is written as in the file. Without
/// a default the setting is required, or `None` if its type is an `Option`.
/// `parts` are fields that are not one key ([`SectionPart`](super::setting::SectionPart)), read last.
macro_rules! section {
    (
        $(#[doc = $about:literal])*
        $(#[derive($($derive:ident),*)])?
        pub struct $Section:ident {
            $(parts { $( $(#[doc = $part_doc:literal])* $part:ident: $Part:ty, )* })?
            settings { $(
                $(#[doc = $doc:literal])*
                $($key:literal =>)? $field:ident: $Type:ty $(as $Kind:ty)? $(= $default:tt)?,
            )* }
        }
    ) => {
        $(#[doc = $about])*
        $(#[derive($($derive),*)])?
        pub struct $Section {
            $($( $(#[doc = $part_doc])* pub $part: $Part, )*)?
            $( $(#[doc = $doc])* pub $field: $Type, )*
        }

        impl $crate::reader::setting::Section for $Section {
            const ABOUT: &'static [&'static str] = &[$($about),*];

            fn setting_rows() -> Vec<$crate::reader::setting::SettingRow> {
                #[allow(unused_mut, reason = "a section without parts starts empty")]
                let mut rows = Vec::new();
                $($( rows.extend(<$Part as $crate::reader::setting::SectionPart>::part_rows()); )*)?
                rows.extend([$(
                    $crate::reader::setting::SettingRow::for_setting::<section!(@kind $Type $(, $Kind)?)>(
                        section!(@key $field $(, $key)?),
                        &[$($doc),*],
                        section!(@default $($default)?),
                    )
                ),*]);
                rows
            }

            fn read_fields(
                table: &$crate::reader::ConfigTable<'_>,
                reader: &mut $crate::reader::ConfigReader<'_>,
            ) -> Option<Self> {
                $(
                    let $field = table.read_setting::<section!(@kind $Type $(, $Kind)?)>(
                        section!(@key $field $(, $key)?),
                        section!(@default $($default)?),
                        reader,
                    );
                )*
                $($( let $part = <$Part as $crate::reader::setting::SectionPart>::read_part(table, reader); )*)?
                Some(Self { $($( $part: $part?, )*)? $( $field: $field?, )* })
            }
        }

        impl $crate::reader::setting::Setting for $Section {
            type Value = Self;

            fn kind_word() -> String {
                "table".into()
            }

            fn example_value() -> String {
                "a table".into()
            }

            fn read_value(
                node: &$crate::reader::ConfigNode<'_>,
                reader: &mut $crate::reader::ConfigReader<'_>,
            ) -> Option<Self> {
                $crate::reader::setting::read_section(node, reader)
            }

            fn json_schema() -> serde_json::Value {
                use $crate::reader::setting::Section;
                $crate::reader::setting::section_schema(Self::ABOUT, &Self::setting_rows())
            }

            fn section_outline() -> Option<$crate::reader::setting::SectionOutline> {
                use $crate::reader::setting::{Section, SectionOutline};
                Some(SectionOutline { suffix: "", about: Self::ABOUT, rows: Self::setting_rows() })
            }
        }
    };
    (@kind $Type:ty) => { $Type };
    (@kind $Type:ty, $Kind:ty) => { $Kind };
    (@key $field:ident) => { stringify!($field) };
    (@key $field:ident, $key:literal) => { $key };
    (@default) => { None };
    (@default $default:tt) => { Some(stringify!($default)) };
}

/// Declares a setting with a fixed set of words: `"word" => Variant`.
macro_rules! choice {
    (
        $(#[doc = $about:literal])*
        pub enum $Choice:ident { $( $(#[doc = $doc:literal])* $word:literal => $Variant:ident, )* }
    ) => {
        $(#[doc = $about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $Choice { $( $(#[doc = $doc])* $Variant, )* }

        impl $Choice {
            /// The word in the file.
            #[inline]
            pub fn as_str(self) -> &'static str {
                match self { $( Self::$Variant => $word, )* }
            }
        }

        impl $crate::reader::setting::Setting for $Choice {
            type Value = Self;

            fn kind_word() -> String {
                [$( concat!("`\"", $word, "\"`") ),*].join(" or ")
            }

            fn example_value() -> String {
                let examples = [$( concat!("\"", $word, "\"") ),*];
                examples.join(" or ")
            }

            fn read_value(
                node: &$crate::reader::ConfigNode<'_>,
                reader: &mut $crate::reader::ConfigReader<'_>,
            ) -> Option<Self> {
                match node.expect_plain_string::<Self>(reader)? {
                    $( $word => Some(Self::$Variant), )*
                    other => {
                        node.refuse_choice(other, &[$($word),*], reader);
                        None
                    }
                }
            }

            fn json_schema() -> serde_json::Value {
                serde_json::json!({ "enum": [$($word),*] })
            }

            fn allowed_words() -> &'static [(&'static str, &'static str)] {
                &[$( ($word, concat!($($doc),*)) ),*]
            }
        }
    };
}

pub(crate) use {choice, section};
