//! The names of element types in the protocols that export arrays.

use std::ffi::CStr;

use larder_client::Dtype;

/// DLPack's `DLDataType`, of one lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DlType {
    pub(super) code: u8,
    pub(super) bits: u8,
}

/// DLPack's `DLDataTypeCode`.
mod code {
    pub(super) const INT: u8 = 0;
    pub(super) const UINT: u8 = 1;
    pub(super) const FLOAT: u8 = 2;
    pub(super) const BFLOAT: u8 = 4;
    pub(super) const COMPLEX: u8 = 5;
    pub(super) const BOOL: u8 = 6;
    pub(super) const FLOAT8_E4M3FN: u8 = 10;
    pub(super) const FLOAT8_E4M3FNUZ: u8 = 11;
    pub(super) const FLOAT8_E5M2: u8 = 12;
    pub(super) const FLOAT8_E5M2FNUZ: u8 = 13;
    pub(super) const FLOAT8_E8M0FNU: u8 = 14;
}

/// The type of a DLPack tensor.
pub(super) fn dlpack(dtype: Dtype) -> DlType {
    let (code, bits) = match dtype {
        Dtype::Bool => (code::BOOL, 8),
        Dtype::U8 => (code::UINT, 8),
        Dtype::U16 => (code::UINT, 16),
        Dtype::U32 => (code::UINT, 32),
        Dtype::U64 => (code::UINT, 64),
        Dtype::I8 => (code::INT, 8),
        Dtype::I16 => (code::INT, 16),
        Dtype::I32 => (code::INT, 32),
        Dtype::I64 => (code::INT, 64),
        Dtype::F16 => (code::FLOAT, 16),
        Dtype::F32 => (code::FLOAT, 32),
        Dtype::F64 => (code::FLOAT, 64),
        Dtype::C64 => (code::COMPLEX, 64),
        Dtype::Bf16 => (code::BFLOAT, 16),
        Dtype::F8E4M3 => (code::FLOAT8_E4M3FN, 8),
        Dtype::F8E4M3Fnuz => (code::FLOAT8_E4M3FNUZ, 8),
        Dtype::F8E5M2 => (code::FLOAT8_E5M2, 8),
        Dtype::F8E5M2Fnuz => (code::FLOAT8_E5M2FNUZ, 8),
        Dtype::F8E8M0 => (code::FLOAT8_E8M0FNU, 8),
    };
    DlType { code, bits }
}

/// The format of the buffer protocol (that of Python's `struct`, and `Zf` for complex numbers), for
/// the types it knows: not bf16 and not the 8-bit floats.
pub(super) fn buffer_format(dtype: Dtype) -> Option<&'static CStr> {
    Some(match dtype {
        Dtype::Bool => c"?",
        Dtype::U8 => c"B",
        Dtype::U16 => c"H",
        Dtype::U32 => c"I",
        Dtype::U64 => c"Q",
        Dtype::I8 => c"b",
        Dtype::I16 => c"h",
        Dtype::I32 => c"i",
        Dtype::I64 => c"q",
        Dtype::F16 => c"e",
        Dtype::F32 => c"f",
        Dtype::F64 => c"d",
        Dtype::C64 => c"Zf",
        Dtype::Bf16
        | Dtype::F8E4M3
        | Dtype::F8E4M3Fnuz
        | Dtype::F8E5M2
        | Dtype::F8E5M2Fnuz
        | Dtype::F8E8M0 => return None,
    })
}

/// The type in the CUDA array interface. It has no bf16 and no 8-bit floats.
pub(super) fn array_interface(dtype: Dtype) -> Option<&'static str> {
    Some(match dtype {
        Dtype::Bool => "|b1",
        Dtype::U8 => "|u1",
        Dtype::U16 => "<u2",
        Dtype::U32 => "<u4",
        Dtype::U64 => "<u8",
        Dtype::I8 => "|i1",
        Dtype::I16 => "<i2",
        Dtype::I32 => "<i4",
        Dtype::I64 => "<i8",
        Dtype::F16 => "<f2",
        Dtype::F32 => "<f4",
        Dtype::F64 => "<f8",
        Dtype::C64 => "<c8",
        Dtype::Bf16
        | Dtype::F8E4M3
        | Dtype::F8E4M3Fnuz
        | Dtype::F8E5M2
        | Dtype::F8E5M2Fnuz
        | Dtype::F8E8M0 => return None,
    })
}
