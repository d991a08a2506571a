// Package modelv1 holds the messages that both API services share, generated
// from the .proto files beside it. PipeCD's messages keep their field numbers
// and enum numbers; fields of our own begin at 1000. It holds no behaviour.
package modelv1
