package opentofu

import (
	"cmp"
	"maps"
	"slices"

	tfjson "github.com/hashicorp/terraform-json"
)

// State are the resources and outputs of a state, without the values of the resources.
type State struct {
	Resources []StateResource `json:"resources,omitempty"`
	Outputs   []Output        `json:"outputs,omitempty"`
}

// StateResource is a resource of a state.
type StateResource struct {
	Resource
	Provider  string   `json:"provider,omitempty"`
	Tainted   bool     `json:"tainted,omitempty"`
	DependsOn []string `json:"dependsOn,omitempty"`
}

// Output is an output. Value is JSON, and Masked for a sensitive one.
type Output struct {
	Name      string `json:"name"`
	Value     string `json:"value"`
	Sensitive bool   `json:"sensitive,omitempty"`
}

// stateOf converts a state as the program shows it. Data sources are no part of it.
func stateOf(shown *tfjson.State) (s State) {
	if shown == nil || shown.Values == nil {
		return s
	}
	for _, name := range slices.Sorted(maps.Keys(shown.Values.Outputs)) {
		o := shown.Values.Outputs[name]
		out := Output{Name: name, Sensitive: o.Sensitive, Value: Masked}
		if !o.Sensitive {
			out.Value = encode(o.Value)
		}
		s.Outputs = append(s.Outputs, out)
	}
	s.add(shown.Values.RootModule)
	slices.SortFunc(s.Resources, func(a, b StateResource) int { return cmp.Compare(a.Address, b.Address) })
	return s
}

func (s *State) add(m *tfjson.StateModule) {
	if m == nil {
		return
	}
	for _, r := range m.Resources {
		if r.Mode != tfjson.ManagedResourceMode || r.DeposedKey != "" {
			continue
		}
		s.Resources = append(s.Resources, StateResource{
			Resource: Resource{Address: r.Address, Module: m.Address, Type: r.Type, Name: r.Name + index(r.Index)},
			Provider: r.ProviderName, Tainted: r.Tainted, DependsOn: r.DependsOn,
		})
	}
	for _, child := range m.ChildModules {
		s.add(child)
	}
}
