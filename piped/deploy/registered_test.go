package deploy

import "testing"

func TestEventKeyIsPipeCDs(t *testing.T) {
	for _, c := range []struct {
		name   string
		labels map[string]string
		want   string // printf 'n/a:1/b:2' | sha256sum
	}{
		{"n", nil, "1b16b1df538ba12dc3f97edbb85caa7050d46c148134290feba80f8236c83db9"},
		{"n", map[string]string{"b": "2", "a": "1"}, "fe792c3cd7f592af6f035dc51e1e6efcf71b1fc001b8dd1c65b0d2a97c447143"},
	} {
		if got := EventKey(c.name, c.labels); got != c.want {
			t.Errorf("key of %s %v: %s, want %s", c.name, c.labels, got, c.want)
		}
	}
}
