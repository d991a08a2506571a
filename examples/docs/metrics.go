package main

import (
	"strings"

	"github.com/c785c783/piped/piped/app"
)

// metricTable returns the agent's own metrics.
func metricTable() string {
	var rows [][]string
	for _, m := range app.Metrics() {
		name := m.Name
		if len(m.Labels) > 0 {
			name += "{" + strings.Join(m.Labels, ",") + "}"
		}
		rows = append(rows, []string{"`" + name + "`", m.Type, m.Help})
	}
	return table([]string{"metric", "type", "meaning"}, rows)
}
