// Package controlv1 holds piped.control.v1.ControlService, the service for
// what PipeCD's APIService lacks, generated from the .proto files beside it.
// It holds no behaviour.
package controlv1
