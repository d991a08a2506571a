package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// openAPIFile is the OpenAPI description of the HTTP API, which the agent embeds.
const openAPIFile = "docs/reference/openapi.json"

// object is a JSON object.
type object = map[string]any

// openAPI writes the description of all methods of both services. The .proto files have no
// google.api.http annotations, which generators of others need.
type openAPI struct {
	comments protoComments
	schemas  object // by full name of the message or enum
	errs     []error
}

// describeAPI returns the OpenAPI description as JSON.
func describeAPI(root string) ([]byte, error) {
	comments, err := readProtoComments(filepath.Join(root, "proto"))
	if err != nil {
		return nil, err
	}
	d := &openAPI{comments: comments, schemas: object{"Error": errorSchema()}}
	paths, tags := object{}, []object{}
	for _, file := range []protoreflect.FileDescriptor{controlv1.File_piped_control_v1_control_proto, apiservice.File_pipecd_apiservice_service_proto} {
		service := file.Services().Get(0)
		tags = append(tags, object{"name": service.Name(), "description": d.comment(service.FullName())})
		for i := range service.Methods().Len() {
			m := service.Methods().Get(i)
			paths["/api/v1/"+string(service.FullName())+"/"+string(m.Name())] = object{"post": d.operation(m)}
		}
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	err = encoder.Encode(object{
		"openapi": "3.0.3",
		"info": object{"title": "piped", "version": "v1", "description": "HTTP API of the piped agent: the methods of its gRPC services as JSON. " +
			"Clients of the Connect and gRPC-Web protocols use the same paths."},
		"tags": tags, "paths": paths, "security": []object{{"apiKey": []string{}}},
		"components": object{"schemas": d.schemas, "securitySchemes": object{"apiKey": object{
			"type": "apiKey", "in": "header", "name": "Authorization", "description": "`API-KEY`, a space, and an API key: `<id>.<secret>`.",
		}}},
	})
	return out.Bytes(), errors.Join(append(d.errs, err)...)
}

// comment returns the comment of a name. A missing one makes describeAPI fail.
func (d *openAPI) comment(name protoreflect.FullName) string {
	text, err := d.comments.of(string(name))
	if err != nil {
		d.errs = append(d.errs, err)
	}
	return text
}

// operation describes a method.
func (d *openAPI) operation(m protoreflect.MethodDescriptor) object {
	description := d.comment(m.FullName())
	summary, _, _ := strings.Cut(description, ". ")
	response := object{"application/json": object{"schema": d.reference(m.Output())}}
	operation := object{
		"operationId": string(m.Parent().Name() + "_" + m.Name()), "tags": []any{m.Parent().Name()},
		"summary": strings.TrimSuffix(summary, "."), "description": description,
		"requestBody": object{"required": true, "content": object{"application/json": object{"schema": d.reference(m.Input())}}},
	}
	if m.IsStreamingServer() {
		operation["x-stream"] = true
		response = object{"application/x-ndjson": object{"schema": object{"oneOf": []object{
			d.reference(m.Output()), {"type": "object", "required": []string{"error"}, "properties": object{"error": reference("Error")}},
		}, "description": "Each line is a message, or, as the last one, the error that has ended the stream."}}}
	}
	operation["responses"] = object{
		"200":     object{"description": "The response.", "content": response},
		"default": object{"description": "An error.", "content": object{"application/json": object{"schema": reference("Error")}}},
	}
	return operation
}

// errorSchema describes Connect's errors.
func errorSchema() object {
	codes := []string{}
	for code := connect.CodeCanceled; code <= connect.CodeUnauthenticated; code++ {
		codes = append(codes, code.String())
	}
	return object{
		"type": "object", "required": []string{"code"}, "description": "An error in the form of the Connect protocol, with gRPC's code and message.",
		"properties": object{
			"code":    object{"type": "string", "enum": codes},
			"message": object{"type": "string"},
			"details": object{"type": "array", "items": object{"type": "object", "properties": object{
				"type":  object{"type": "string", "description": "Name of a protobuf message, such as google.rpc.RetryInfo."},
				"value": object{"type": "string", "description": "The message, encoded in binary and then in unpadded base64."},
				"debug": object{"type": "object", "description": "The message in JSON."},
			}}},
		},
	}
}

// described is a message or an enum.
type described interface{ FullName() protoreflect.FullName }

// reference returns a reference to the schema of a message or enum, which it adds.
func (d *openAPI) reference(of described) object {
	name := string(of.FullName())
	if _, known := d.schemas[name]; !known {
		d.schemas[name] = nil // a message may contain itself
		switch of := of.(type) {
		case protoreflect.MessageDescriptor:
			d.schemas[name] = d.message(of)
		case protoreflect.EnumDescriptor:
			d.schemas[name] = d.enum(of)
		}
	}
	return reference(name)
}

func reference(name string) object { return object{"$ref": "#/components/schemas/" + name} }

func (d *openAPI) message(m protoreflect.MessageDescriptor) object {
	properties := object{}
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		schema := d.field(f)
		if schema["$ref"] != nil { // nothing may stand next to a reference
			schema = object{"allOf": []object{schema}}
		}
		schema["description"] = d.comment(f.FullName())
		properties[f.JSONName()] = schema
	}
	return object{"type": "object", "description": d.comment(m.FullName()), "properties": properties}
}

// field describes the values of a field.
func (d *openAPI) field(f protoreflect.FieldDescriptor) object {
	switch {
	case f.IsMap():
		return object{"type": "object", "additionalProperties": d.value(f.MapValue())}
	case f.IsList():
		return object{"type": "array", "items": d.value(f)}
	}
	return d.value(f)
}

// value describes one value in the JSON form of protobuf.
func (d *openAPI) value(f protoreflect.FieldDescriptor) object {
	typed := func(name, format string) object { return object{"type": name, "format": format} }
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return d.reference(f.Message())
	case protoreflect.EnumKind:
		return d.reference(f.Enum())
	case protoreflect.BoolKind:
		return object{"type": "boolean"}
	case protoreflect.StringKind:
		return object{"type": "string"}
	case protoreflect.BytesKind:
		return typed("string", "byte")
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return typed("number", f.Kind().String())
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind, protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return typed("integer", "int32")
	default: // 64 bits; a string, because JavaScript's numbers are inexact
		return typed("string", "int64")
	}
}

func (d *openAPI) enum(e protoreflect.EnumDescriptor) object {
	names, description := []string{}, d.comment(e.FullName())+"\n"
	for i := range e.Values().Len() {
		name := string(e.Values().Get(i).Name())
		names = append(names, name)
		description += "\n- `" + name + "`: " + d.comment(e.FullName().Append(protoreflect.Name(name)))
	}
	return object{"type": "string", "enum": names, "description": description}
}
