package config

import "github.com/c785c783/piped/piped/config/strict"

// refuseUnsupported reports those of the lists to d that have an item: this version
// cannot honour them.
func refuseUnsupported(d *strict.Document, lists []string) {
	for _, field := range lists {
		if d.Has(field + "[0]") {
			d.Unsupported(field, "")
		}
	}
}
