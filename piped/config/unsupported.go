package config

import "github.com/c785c783/piped/piped/config/strict"

// unsupportedFields are the fields of spec that are read and checked, but that
// this version cannot honour: what has one of them is refused. A line goes when
// its feature comes; nothing else has to change here.
func unsupportedFields() []string {
	return []string{
		"resourceRoutes",
	}
}

// refuseUnsupported reports to d what of it this version cannot honour. What is empty
// asks for nothing.
func refuseUnsupported(d *strict.Document) {
	for _, field := range unsupportedFields() {
		if d.Has(field + "[0]") {
			d.Unsupported(field, "")
		}
	}
}
