package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

func TestResolve(t *testing.T) {
	cases, err := filepath.Glob("testdata/resolve/*.txtar")
	if err != nil || len(cases) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range cases {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_, namespace, _ := strings.Cut(strings.TrimSpace(string(archive.Comment)), "namespace: ")
			var objs []manifest.Object
			var want, wantErr string
			for _, f := range archive.Files {
				switch f.Name {
				case "want":
					want = string(f.Data)
				case "error":
					wantErr = strings.TrimSpace(string(f.Data))
				default:
					objs = append(objs, parse(t, f.Name, string(f.Data))...)
				}
			}
			before := manifest.Clone(objs)
			got, err := offline(t, builtIns()).Resolve(context.Background(), objs, namespace, nil)
			if fmt.Sprint(err) != wantErr && (err != nil || wantErr != "") {
				t.Errorf("error:\n%v\nwant:\n%s", err, wantErr)
			}
			if diff := cmp.Diff(want, describe(got)); diff != "" {
				t.Errorf("resolved objects (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, objs); diff != "" {
				t.Errorf("the objects given were changed:\n%s", diff)
			}
		})
	}
}

func describe(objs []manifest.Object) string {
	var b strings.Builder
	for _, o := range objs {
		fmt.Fprintf(&b, "%s %s\n", o.GetAPIVersion(), manifest.Ref(o.Unstructured))
	}
	return b.String()
}

// TestPlace: a kind that the cluster does not serve does not affect the other objects of
// a plan.
func TestPlace(t *testing.T) {
	objs := parse(t, "web.yaml", `apiVersion: v1
kind: ConfigMap
metadata: {name: a}
---
apiVersion: v1
kind: Namespace
metadata: {name: b}
---
apiVersion: example.com/v1
kind: Unknown
metadata: {name: c}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: a, namespace: other}
`)
	got, err := offline(t, builtIns()).Place(t.Context(), objs, "shop")
	want := "v1 ConfigMap shop/a\nv1 Namespace b\nexample.com/v1 Unknown shop/c\nv1 ConfigMap shop/a\n"
	if diff := cmp.Diff(want, describe(got)); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := offline(t, nil).Place(t.Context(), objs, "shop"); deploy.KindOf(err) != deploy.Unavailable {
		t.Errorf("of a cluster that does not answer: %v", err)
	}
}

func TestResolveAgainstAnUnreachableCluster(t *testing.T) {
	objs := parse(t, "web.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")
	_, err := offline(t, nil).Resolve(context.Background(), objs, "", nil)
	if deploy.KindOf(err) != deploy.Unavailable {
		t.Errorf("kind of %v is %v, want unavailable", err, deploy.KindOf(err))
	}
	want := `find how ConfigMap a is served: cluster "test" (https://127.0.0.1:1) cannot be reached: dial tcp 127.0.0.1:1: connect: connection refused`
	if fmt.Sprint(err) != want {
		t.Errorf("error:\n%v\nwant:\n%s", err, want)
	}
}
