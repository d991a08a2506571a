package config

import (
	"slices"

	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

// unsupportedFields are the fields of spec that are read and checked, but that
// this version cannot honour: what has one of them is refused. A line goes when
// its feature comes; nothing else has to change here.
func unsupportedFields() []string {
	return []string{
		"resourceRoutes",
		"configPropagation",
		"eventWatcher",
		"driftDetection.ignoreRules",
	}
}

// unsupportedStages are the same for the stages of a pipeline.
func unsupportedStages() []string {
	return []string{
		deploy.StageAnalysis,
	}
}

// refuseUnsupported reports to d what of app this version cannot honour.
func refuseUnsupported(d *strict.Document, app *Application) {
	for _, field := range unsupportedFields() {
		if d.Has(field) {
			d.Unsupported(field, "")
		}
	}
	if app.Pipeline == nil {
		return
	}
	for i, s := range app.Pipeline.Stages {
		if slices.Contains(unsupportedStages(), s.Name) {
			d.Unsupported(stageAt(i)+".name", s.Name)
		}
	}
}
