package control

import (
	"bytes"
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// frame is a message of a call as Connect sees it. Connect does not know its type: a request
// stays encoded until the method's handler decodes it into a message of its type.
type frame struct {
	encoded  []byte   // request
	encoding encoding // of the request
	response any
}

// decode decodes a request into a message.
func (f *frame) decode(message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return errNoMessage(message)
	}
	if f.encoding.unmarshal == nil {
		return nil // Connect decodes no empty messages; their fields have no values
	}
	if err := f.encoding.unmarshal(f.encoded, m); err != nil {
		return status.Errorf(codes.InvalidArgument, "the request is no %s in %s: %s", m.ProtoReflect().Descriptor().Name(), f.encoding.name, parseError(err))
	}
	return nil
}

// parseError returns the text of an error of the protobuf module, which contains no-break
// spaces at random so that nobody depends on it.
func parseError(err error) string {
	return strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "proto: ")
}

func errNoMessage(message any) error { return fmt.Errorf("%T is no protobuf message", message) }

// encoding is a connect.Codec that leaves the decoding of requests to frame.
type encoding struct {
	name      string
	marshal   func(proto.Message) ([]byte, error)
	unmarshal func([]byte, proto.Message) error
}

// encodings returns the encodings of messages.
func encodings() []connect.Codec {
	return []connect.Codec{binaryEncoding(), jsonEncoding("json"), jsonEncoding("json; charset=utf-8")}
}

func binaryEncoding() encoding { return encoding{"proto", proto.Marshal, proto.Unmarshal} }

// jsonEncoding is protobuf's JSON form. Unlike Connect's default it rejects fields that it
// does not know, since a misspelled one would silently have no effect, and writes fields with
// default values, since some of these have a meaning, such as DEPLOYMENT_PENDING.
func jsonEncoding(name string) encoding {
	return encoding{name, protojson.MarshalOptions{EmitDefaultValues: true}.Marshal, protojson.Unmarshal}
}

// Name implements connect.Codec.
func (e encoding) Name() string { return e.name }

// Marshal implements connect.Codec.
func (e encoding) Marshal(message any) ([]byte, error) {
	if f, ok := message.(*frame); ok {
		message = f.response
	}
	m, ok := message.(proto.Message)
	if !ok {
		return nil, errNoMessage(message)
	}
	return e.marshal(m)
}

// Unmarshal implements connect.Codec. It copies data, which Connect reuses.
func (e encoding) Unmarshal(data []byte, message any) error {
	f, ok := message.(*frame)
	if !ok {
		return errNoMessage(message)
	}
	f.encoded, f.encoding = bytes.Clone(data), e
	return nil
}
