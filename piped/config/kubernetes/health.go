package kubernetes

import (
	"fmt"

	"github.com/c785c783/piped/piped/config/strict"
)

// HealthCheck says when objects of a kind are healthy that do not say so by the
// conditions everyone knows.
type HealthCheck struct {
	// APIVersion is the API version of the objects.
	// Default: all versions.
	APIVersion string `yaml:"apiVersion"`
	// Kind is the kind of the objects.
	// Required.
	Kind string `yaml:"kind"`
	// Healthy are conditions that must all hold.
	// Required.
	Healthy []Condition `yaml:"healthy"`
	// Failed are conditions of which one makes the object failed.
	// Default: none.
	Failed []Condition `yaml:"failed"`
}

// Condition is an entry of status.conditions.
type Condition struct {
	// Type is the type of the condition.
	// Required.
	Type string `yaml:"type"`
	// Status is its status.
	Status ConditionStatus `yaml:"status"`
}

// Default implements strict.Defaulter.
func (c *Condition) Default() { c.Status = "True" }

// ConditionStatus is the status of a condition.
type ConditionStatus string

// Values lists the statuses.
func (ConditionStatus) Values() []string { return []string{"True", "False", "Unknown"} }

func (h HealthCheck) complete(d *strict.Document, at string) {
	if h.Kind == "" {
		d.Problemf(at+".kind", "required; expected the kind of the objects")
	}
	if len(h.Healthy) == 0 {
		d.Problemf(at+".healthy", "expected at least one condition")
	}
	for list, conditions := range map[string][]Condition{"healthy": h.Healthy, "failed": h.Failed} {
		for i, c := range conditions {
			if c.Type == "" {
				d.Problemf(fmt.Sprintf("%s.%s[%d].type", at, list, i), "required; expected the type of a condition, such as Ready")
			}
		}
	}
}
