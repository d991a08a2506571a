package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// TestOpenAPIDescription: an independent implementation of OpenAPI accepts the description, and
// it says what the .proto files say.
func TestOpenAPIDescription(t *testing.T) {
	text, err := describeAPI(root)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if stored, err := os.ReadFile(filepath.Join(root, openAPIFile)); err != nil || string(stored) != string(text) {
		t.Errorf("%s is stale (%v); run: make generate", openAPIFile, err)
	}

	follow := doc.Paths.Find("/api/v1/piped.control.v1.ControlService/FollowStageLogs").Post
	if follow.Summary != "Streams the logs of a deployment's stages from any point on" || !strings.Contains(follow.Description, "UNAVAILABLE and UNAUTHENTICATED: as WatchDeployments") ||
		follow.Responses.Status(200).Value.Content["application/x-ndjson"] == nil {
		t.Errorf("FollowStageLogs is described as %+v", follow)
	}
	request := follow.RequestBody.Value.Content["application/json"].Schema
	if request.Ref != "#/components/schemas/piped.control.v1.FollowStageLogsRequest" {
		t.Errorf("its request is %s", request.Ref)
	}
	after := request.Value.Properties["afterIndex"].Value
	if values := after.AdditionalProperties.Schema.Value; !after.Type.Is("object") || !values.Type.Is("string") || values.Format != "int64" {
		t.Errorf("a map of 64-bit numbers is described as %+v", after)
	}
	kind := doc.Components.Schemas["piped.model.v1.ArtifactVersion.Kind"].Value
	if len(kind.Enum) != 5 || kind.Enum[1] != "CONTAINER_IMAGE" || !strings.Contains(kind.Description, "- `S3_OBJECT`: Object in an S3 bucket.") {
		t.Errorf("an enum is described as %+v", kind)
	}
	nested := doc.Components.Schemas["piped.model.v1.DeploymentMetadata.KeyValues"].Value
	if nested.Properties["keyValues"].Value.Description != "Values by key." {
		t.Errorf("a field of a nested message is described as %+v", nested)
	}
}

func TestProtoComments(t *testing.T) {
	comments := protoComments{}
	comments.read([]byte(`// Of the file.
syntax = "proto3";

package a.b;

// Not of the message.

// A message
// in two lines.
//
// And a paragraph.
message M {
  reserved 2;
  // Inner.
  message N {}
  // A choice.
  enum E {
    // Nothing.
    E_UNSPECIFIED = 0;
  }
  // A map.
  map<string, a.b.N> by_name = 1;
  // Optional.
  optional int64 count = 3 [deprecated = true];
  int32 bare = 4;
}

// Serves.
service S {
  // Calls.
  rpc Call(M) returns (stream M) {}
}
`))
	want := map[string]string{
		"a.b.M": "A message in two lines.\n\nAnd a paragraph.", "a.b.M.N": "Inner.", "a.b.M.E": "A choice.", "a.b.M.E.E_UNSPECIFIED": "Nothing.",
		"a.b.M.by_name": "A map.", "a.b.M.count": "Optional.", "a.b.S": "Serves.", "a.b.S.Call": "Calls.",
	}
	for name, text := range want {
		if got, err := comments.of(name); err != nil || got != text {
			t.Errorf("%s: %q, %v; want %q", name, got, err, text)
		}
	}
	if _, err := comments.of("a.b.M.bare"); err == nil || !strings.Contains(err.Error(), "a.b.M.bare has no comment") {
		t.Errorf("without a comment: %v", err)
	}
}
