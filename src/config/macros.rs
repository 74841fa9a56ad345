//! The two forms in which the configuration is declared. A field, its key, its
//! kind, its default and its sentence stand in one place; the struct, the
//! reader, the docs page and the JSON Schema all come from it.

/// Declares a table of the configuration.
///
/// A setting is `"key" => field: Type as Kind = default`, where the key is the
/// field's name unless given, the kind (a [`Setting`](super::setting::Setting))
/// is the type unless given, and the default is written as in the file. Without
/// a default the setting is required, or `None` if its type is an `Option`.
/// `parts` are fields that are not one key ([`Part`](super::setting::Part)), read last.
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

        impl $crate::config::setting::Section for $Section {
            const ABOUT: &'static [&'static str] = &[$($about),*];

            fn rows() -> Vec<$crate::config::setting::Row> {
                #[allow(unused_mut, reason = "a section without parts starts empty")]
                let mut rows = Vec::new();
                $($( rows.extend(<$Part as $crate::config::setting::Part>::rows()); )*)?
                rows.extend([$(
                    $crate::config::setting::Row::of::<section!(@kind $Type $(, $Kind)?)>(
                        section!(@key $field $(, $key)?),
                        &[$($doc),*],
                        section!(@default $($default)?),
                    )
                ),*]);
                rows
            }

            fn fields(
                table: &$crate::config::reader::Table<'_>,
                reader: &mut $crate::config::reader::Reader<'_>,
            ) -> Option<Self> {
                $(
                    let $field = table.setting::<section!(@kind $Type $(, $Kind)?)>(
                        section!(@key $field $(, $key)?),
                        section!(@default $($default)?),
                        reader,
                    );
                )*
                $($( let $part = <$Part as $crate::config::setting::Part>::read(table, reader); )*)?
                Some(Self { $($( $part: $part?, )*)? $( $field: $field?, )* })
            }
        }

        impl $crate::config::setting::Setting for $Section {
            type Value = Self;

            fn word() -> String {
                "table".into()
            }

            fn example() -> String {
                "a table".into()
            }

            fn read(
                node: &$crate::config::reader::Node<'_>,
                reader: &mut $crate::config::reader::Reader<'_>,
            ) -> Option<Self> {
                $crate::config::setting::read_section(node, reader)
            }

            fn schema() -> serde_json::Value {
                use $crate::config::setting::Section;
                $crate::config::setting::section_schema(Self::ABOUT, &Self::rows())
            }

            fn outline() -> Option<$crate::config::setting::Outline> {
                use $crate::config::setting::{Outline, Section};
                Some(Outline { suffix: "", about: Self::ABOUT, rows: Self::rows() })
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

/// Declares a setting that is one of a few words: `"word" => Variant`.
macro_rules! choice {
    (
        $(#[doc = $about:literal])*
        pub enum $Choice:ident { $( $(#[doc = $doc:literal])* $word:literal => $Variant:ident, )* }
    ) => {
        $(#[doc = $about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $Choice { $( $(#[doc = $doc])* $Variant, )* }

        impl $Choice {
            /// The word that stands for it in the file.
            pub fn as_str(self) -> &'static str {
                match self { $( Self::$Variant => $word, )* }
            }
        }

        impl $crate::config::setting::Setting for $Choice {
            type Value = Self;

            fn word() -> String {
                [$( concat!("`\"", $word, "\"`") ),*].join(" or ")
            }

            fn example() -> String {
                let examples = [$( concat!("\"", $word, "\"") ),*];
                examples.join(" or ")
            }

            fn read(
                node: &$crate::config::reader::Node<'_>,
                reader: &mut $crate::config::reader::Reader<'_>,
            ) -> Option<Self> {
                match node.plain::<Self>(reader)? {
                    $( $word => Some(Self::$Variant), )*
                    other => {
                        node.refuse_choice(other, &[$($word),*], reader);
                        None
                    }
                }
            }

            fn schema() -> serde_json::Value {
                serde_json::json!({ "enum": [$($word),*] })
            }

            fn choices() -> &'static [(&'static str, &'static str)] {
                &[$( ($word, concat!($($doc),*)) ),*]
            }
        }
    };
}

pub(super) use {choice, section};
