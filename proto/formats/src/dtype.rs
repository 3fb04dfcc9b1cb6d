//! The types of an element: those of safetensors that fill whole bytes, which include numpy's.

mod logical;

use std::fmt;

pub use logical::{Logical, TimeUnit};

/// The type of one element. All are little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum Dtype {
    Bool,
    U8,
    I8,
    F8E5M2,
    F8E4M3,
    F8E8M0,
    F8E4M3Fnuz,
    F8E5M2Fnuz,
    I16,
    U16,
    F16,
    Bf16,
    I32,
    U32,
    F32,
    C64,
    I64,
    U64,
    F64,
}

struct Facts {
    dtype: Dtype,
    /// The number in a manifest. Never reused.
    code: u16,
    bytes: u64,
    safetensors: &'static str,
    /// numpy sees a type it lacks as raw bytes of the same width.
    numpy: &'static str,
}

const fn facts(
    dtype: Dtype,
    code: u16,
    bytes: u64,
    safetensors: &'static str,
    numpy: &'static str,
) -> Facts {
    Facts { dtype, code, bytes, safetensors, numpy }
}

const TABLE: [Facts; 19] = [
    facts(Dtype::Bool, 1, 1, "BOOL", "|b1"),
    facts(Dtype::U8, 2, 1, "U8", "|u1"),
    facts(Dtype::I8, 3, 1, "I8", "|i1"),
    facts(Dtype::F8E5M2, 4, 1, "F8_E5M2", "|V1"),
    facts(Dtype::F8E4M3, 5, 1, "F8_E4M3", "|V1"),
    facts(Dtype::F8E8M0, 6, 1, "F8_E8M0", "|V1"),
    facts(Dtype::F8E4M3Fnuz, 7, 1, "F8_E4M3FNUZ", "|V1"),
    facts(Dtype::F8E5M2Fnuz, 8, 1, "F8_E5M2FNUZ", "|V1"),
    facts(Dtype::I16, 9, 2, "I16", "<i2"),
    facts(Dtype::U16, 10, 2, "U16", "<u2"),
    facts(Dtype::F16, 11, 2, "F16", "<f2"),
    facts(Dtype::Bf16, 12, 2, "BF16", "<V2"),
    facts(Dtype::I32, 13, 4, "I32", "<i4"),
    facts(Dtype::U32, 14, 4, "U32", "<u4"),
    facts(Dtype::F32, 15, 4, "F32", "<f4"),
    facts(Dtype::C64, 16, 8, "C64", "<c8"),
    facts(Dtype::I64, 17, 8, "I64", "<i8"),
    facts(Dtype::U64, 18, 8, "U64", "<u8"),
    facts(Dtype::F64, 19, 8, "F64", "<f8"),
];

impl Dtype {
    fn facts(self) -> &'static Facts {
        TABLE.iter().find(|f| f.dtype == self).expect("every dtype has its line in the table")
    }

    /// Returns the bytes of one element.
    pub fn size_bytes(self) -> u64 {
        self.facts().bytes
    }

    /// Returns the code numpy writes into a header, such as `<f4`. Types that numpy lacks (bf16,
    /// 8-bit floats) are raw bytes to it: `<V2`, `|V1`.
    pub fn numpy_descr(self) -> &'static str {
        self.facts().numpy
    }

    /// Returns the name in a safetensors header, such as `F32`.
    pub fn safetensors_name(self) -> &'static str {
        self.facts().safetensors
    }

    /// Returns the type with this name in a safetensors header.
    pub fn from_safetensors_name(name: &str) -> Option<Self> {
        TABLE.iter().find(|f| f.safetensors == name).map(|f| f.dtype)
    }

    /// Returns the name in numpy and ml_dtypes, and in torch if it has the type: `float32`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::U8 => "uint8",
            Self::U16 => "uint16",
            Self::U32 => "uint32",
            Self::U64 => "uint64",
            Self::I8 => "int8",
            Self::I16 => "int16",
            Self::I32 => "int32",
            Self::I64 => "int64",
            Self::F16 => "float16",
            Self::F32 => "float32",
            Self::F64 => "float64",
            Self::C64 => "complex64",
            Self::Bf16 => "bfloat16",
            Self::F8E4M3 => "float8_e4m3fn",
            Self::F8E4M3Fnuz => "float8_e4m3fnuz",
            Self::F8E5M2 => "float8_e5m2",
            Self::F8E5M2Fnuz => "float8_e5m2fnuz",
            Self::F8E8M0 => "float8_e8m0fnu",
        }
    }

    /// Returns the type with this little-endian numpy code or numpy name (`<u2`, `u2`, `uint16`).
    pub fn from_numpy(text: &str) -> Option<Self> {
        let code = text.strip_prefix(['<', '|']).unwrap_or(text);
        let known = TABLE.iter().filter(|f| !f.numpy[1..].starts_with('V'));
        known.map(|f| f.dtype).find(|d| d.name() == text || &d.numpy_descr()[1..] == code)
    }

    /// Returns the number that stands for this type in a manifest.
    pub fn code(self) -> u16 {
        self.facts().code
    }

    /// Returns the type that `code` stands for in a manifest.
    pub fn from_code(code: u16) -> Option<Self> {
        TABLE.iter().find(|f| f.code == code).map(|f| f.dtype)
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.safetensors_name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_found_by_each_of_its_names() {
        for f in &TABLE {
            assert_eq!(Dtype::from_code(f.code), Some(f.dtype));
            assert_eq!(Dtype::from_safetensors_name(f.safetensors), Some(f.dtype));
            if !f.numpy.contains('V') {
                assert_eq!(Dtype::from_numpy(f.numpy), Some(f.dtype));
            }
        }
        assert_eq!(Dtype::from_numpy("uint16"), Some(Dtype::U16));
        assert_eq!(Dtype::from_numpy(">u2"), None);
        assert_eq!(Dtype::from_numpy("V1"), None);
    }
}
