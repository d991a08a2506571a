package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPaths: which steps a path is made of. What is no path is among the cases of
// testdata.
func TestPaths(t *testing.T) {
	item := func(fields ...[2]string) Step { return Step{Item: fields} }
	for path, want := range map[string][]Step{
		"/spec":                               {{Key: "spec"}},
		"/spec/args/0":                        {{Key: "spec"}, {Key: "args"}, {Key: "0"}},
		"/a~1b~0c/~01":                        {{Key: "a/b~c"}, {Key: "~1"}},
		"/containers[name=web]/image":         {{Key: "containers"}, item([2]string{"name", "web"}), {Key: "image"}},
		"/ports[port=80,protocol=TCP]":        {{Key: "ports"}, item([2]string{"port", "80"}, [2]string{"protocol", "TCP"})},
		"/finalizers[=example.com~1hold]":     {{Key: "finalizers"}, item([2]string{"", "example.com/hold"})},
		"/env[name=A=B]":                      {{Key: "env"}, item([2]string{"name", "A=B"})},
		"/lists/0/[name=x]":                   {{Key: "lists"}, {Key: "0"}, item([2]string{"name", "x"})},
		"/hosts[~1=x~0]":                      {{Key: "hosts"}, item([2]string{"/", "x~"})},
		"/metadata/annotations/example.com~1": {{Key: "metadata"}, {Key: "annotations"}, {Key: "example.com/"}},
	} {
		got, err := ParsePath(path)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", path, err, diff)
		}
	}
}
