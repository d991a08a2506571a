package config

import (
	"fmt"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Glob matches a name: * stands for any text, ? for a character, [a-c] for one of
// several.
type Glob string

// UnmarshalText checks a pattern.
func (g *Glob) UnmarshalText(text []byte) error {
	if _, err := path.Match(string(text), ""); err != nil || len(text) == 0 || strings.Contains(string(text), "/") {
		return fmt.Errorf("expected %s, found %q", g.Expected(), text)
	}
	*g = Glob(text)
	return nil
}

// Expected says what a Glob is read from.
func (g Glob) Expected() string { return "a name, or a pattern such as team-a-*" }

func (g Glob) match(name string) bool {
	ok, err := path.Match(string(g), name)
	return ok && err == nil // checked when read: no error is left
}

// KindPattern matches kinds: Kind is a kind of any API group, group/Kind one of
// that group, and core/Kind one of the group without a name; both parts may be
// patterns as of a Glob. Upper and lower case are the same.
type KindPattern string

// UnmarshalText checks a pattern.
func (k *KindPattern) UnmarshalText(text []byte) error {
	group, kind, two := strings.Cut(string(text), "/")
	if !two {
		group, kind = "*", group
	}
	for _, part := range []string{group, kind} {
		if _, err := path.Match(part, ""); err != nil || part == "" || strings.Contains(part, "/") {
			return fmt.Errorf("expected %s, found %q", k.Expected(), text)
		}
	}
	*k = KindPattern(text)
	return nil
}

// Expected says what a KindPattern is read from.
func (k KindPattern) Expected() string { return "a kind such as ConfigMap, apps/Deployment or apps/*" }

func (k KindPattern) match(group, kind string) bool {
	wantGroup, wantKind, two := strings.Cut(strings.ToLower(string(k)), "/")
	if !two {
		wantGroup, wantKind = "*", wantGroup
	}
	if group == "" {
		group = "core"
	}
	return Glob(wantGroup).match(strings.ToLower(group)) && Glob(wantKind).match(strings.ToLower(kind))
}

// ServiceAccount names a service account of the cluster; the zero value is none.
type ServiceAccount struct{ Namespace, Name string }

// UnmarshalText reads namespace/name.
func (s *ServiceAccount) UnmarshalText(text []byte) error {
	namespace, name, _ := strings.Cut(string(text), "/")
	if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return fmt.Errorf("expected %s, found %q", s.Expected(), text)
	}
	*s = ServiceAccount{Namespace: namespace, Name: name}
	return nil
}

// Expected says what a ServiceAccount is read from.
func (s ServiceAccount) Expected() string { return "the namespace/name of a service account" }

// String returns namespace/name.
func (s ServiceAccount) String() string { return s.Namespace + "/" + s.Name }

// User is the name by which the API server knows the account, "" for none.
func (s ServiceAccount) User() string {
	if s == (ServiceAccount{}) {
		return ""
	}
	return "system:serviceaccount:" + s.Namespace + ":" + s.Name
}
