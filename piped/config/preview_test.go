package config

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

// TestNamespacesOfPreviews: Kubernetes accepts every name, and repositories whose IDs differ only in
// what does not fit have different ones.
func TestNamespacesOfPreviews(t *testing.T) {
	p := Previews{NamespacePrefix: strings.Repeat("p", maxNamespacePrefix-1) + "-"}
	seen := map[string]string{}
	for _, repo := range []string{"apps", "Apps", "apps_", "apps.", "apps/-", "-", "ünï", strings.Repeat("a", 100), strings.Repeat("a", 101)} {
		for _, number := range []int{1, 1234567890} {
			name := p.Namespace(repo, number)
			if why := validation.IsDNS1123Label(name); why != nil {
				t.Errorf("%q: %s", name, why)
			}
			of := fmt.Sprint(repo, " ", number)
			if other, ok := seen[name]; ok {
				t.Errorf("%s and %s have namespace %q", of, other, name)
			}
			seen[name] = of
		}
	}
}
