// Package proto is the root of the wire contracts: .proto files and the Go
// generated from them, and nothing else. The contracts are in the packages
// below it:
//
//	piped/model/v1      messages both services share (package modelv1)
//	piped/control/v1    ControlService, the agent's own API (package controlv1)
//	pipecd/apiservice   APIService, PipeCD's client API (package apiservice)
//
// After changing a .proto file run proto/generate.sh; proto/check.sh says
// whether that was forgotten. The test in this folder compares the descriptors
// with testdata/pipecd-wire.tsv, a table of PipeCD's contract that is not made
// from them.
package proto
