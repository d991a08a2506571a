package kubernetes

import "testing"

func TestReplicas(t *testing.T) {
	tests := []struct {
		text    string
		primary int32
		want    int32
	}{
		{"50%", 30, 15},
		{"10%", 3, 1},
		{"10%", 11, 2}, // rounded up
		{"100%", 0, 1},
		{"200%", 3, 6},
		{"100%", 2147483647, 2147483647},
		{"2147483647%", 2147483647, 2147483647},
		{"5", 3, 5},
		{" 5 ", 0, 5},
		{"0", 30, 1},
	}
	for _, tt := range tests {
		var r Replicas
		if err := r.UnmarshalText([]byte(tt.text)); err != nil {
			t.Errorf("%s: %v", tt.text, err)
		}
		if got := r.Of(tt.primary); got != tt.want {
			t.Errorf("%s of %d: got %d, want %d", tt.text, tt.primary, got, tt.want)
		}
	}
	for _, text := range []string{"", "%", "-1", "-5%", "0%", "1.5", "many", "2147483648"} {
		if err := new(Replicas).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q: want an error", text)
		}
	}
}
