//! Tests of the library as a program uses it, without nodes. One binary holds them all, since
//! linking is slow.

mod files;
mod from_origin;
mod ragged;
