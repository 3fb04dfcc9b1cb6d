//! Tests of the library as a program uses it, without nodes. They share one binary, because linking
//! is slow.

mod files;
mod from_origin;
mod ragged;
