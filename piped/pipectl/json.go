package pipectl

import (
	"bytes"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// namedJSON encodes a message like encoding/json encodes its generated struct, but with
// the names of enums. An enum number without a name stays a number.
func namedJSON(m proto.Message) ([]byte, error) {
	var b bytes.Buffer
	err := writeMessage(&b, m.ProtoReflect())
	return b.Bytes(), err
}

// writeMessage writes a JSON object with the set fields of m under their proto names.
func writeMessage(b *bytes.Buffer, m protoreflect.Message) error {
	fields := m.Descriptor().Fields()
	b.WriteByte('{')
	first := true
	for i := range fields.Len() {
		f := fields.Get(i)
		if !m.Has(f) {
			continue
		}
		if !first {
			b.WriteByte(',')
		}
		first = false
		fmt.Fprintf(b, "%q:", f.Name())
		if err := writeField(b, f, m.Get(f)); err != nil {
			return err
		}
	}
	b.WriteByte('}')
	return nil
}

func writeField(b *bytes.Buffer, f protoreflect.FieldDescriptor, v protoreflect.Value) error {
	switch {
	case f.IsList():
		return writeList(b, f, v.List())
	case f.IsMap():
		return writeMap(b, f, v.Map())
	}
	return writeValue(b, f, v)
}

func writeList(b *bytes.Buffer, f protoreflect.FieldDescriptor, list protoreflect.List) error {
	b.WriteByte('[')
	for i := range list.Len() {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := writeValue(b, f, list.Get(i)); err != nil {
			return err
		}
	}
	b.WriteByte(']')
	return nil
}

// writeMap leaves the order of the keys to encoding/json.
func writeMap(b *bytes.Buffer, f protoreflect.FieldDescriptor, m protoreflect.Map) (err error) {
	values := make(map[string]json.RawMessage, m.Len())
	m.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		var value bytes.Buffer
		err = writeValue(&value, f.MapValue(), v)
		values[k.String()] = value.Bytes()
		return err == nil
	})
	if err != nil {
		return err
	}
	return appendJSON(b, values)
}

func writeValue(b *bytes.Buffer, f protoreflect.FieldDescriptor, v protoreflect.Value) error {
	switch {
	case f.Message() != nil:
		return writeMessage(b, v.Message())
	case f.Enum() == nil:
		return appendJSON(b, v.Interface())
	}
	if value := f.Enum().Values().ByNumber(v.Enum()); value != nil {
		return appendJSON(b, string(value.Name()))
	}
	return appendJSON(b, int32(v.Enum()))
}

func appendJSON(b *bytes.Buffer, v any) error {
	data, err := json.Marshal(v)
	b.Write(data)
	return err
}
