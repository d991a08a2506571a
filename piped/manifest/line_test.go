package manifest

import "testing"

const twoObjects = `# first
apiVersion: v1
kind: ConfigMap
metadata:
  name: a
  labels: {example.com/app: web}
---

apiVersion: v1
kind: List
items:
  - apiVersion: v1
    kind: Pod
    spec:
      containers:
        - name: a
        - name: b
          image: c
`

func TestFieldLine(t *testing.T) {
	for _, c := range []struct {
		object int
		path   string
		want   int
	}{
		{2, "kind", 3},
		{2, "metadata.name", 5},
		{2, "metadata.labels[example.com/app]", 6},
		{2, "metadata.annotations.x", 4},
		{2, "", 2},
		{9, "items[0].kind", 13},
		{12, "spec.containers[1].image", 18},
		{12, "spec.containers[1].command", 17},
		{12, "spec.containers[7].image", 15},
		{4, "name", 0},
		{40, "name", 0},
	} {
		if got := FieldLine([]byte(twoObjects), c.object, c.path); got != c.want {
			t.Errorf("%s of the object at line %d: got line %d, want %d", c.path, c.object, got, c.want)
		}
	}
	if got := FieldLine([]byte(`{"kind": "Pod",`+"\n"+`"spec": {}}`), 1, "spec"); got != 2 {
		t.Errorf("in JSON: got line %d, want 2", got)
	}
}
