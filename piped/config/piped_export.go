package config

import (
	"net/url"
	"regexp"
	"strings"

	"github.com/c785c783/piped/piped/config/strict"
)

// RolloutExport is spec.rolloutExport: where the records of rollouts and scalings go
// when they have ended.
type RolloutExport struct {
	// BigQuery is a table of Google BigQuery.
	BigQuery *BigQuery `yaml:"bigquery"`
}

// BigQuery names a table, and who writes into it.
type BigQuery struct {
	// Project is the ID of the Google Cloud project.
	// Required.
	Project string `yaml:"project"`
	// Dataset is the dataset of the table.
	// Required.
	Dataset string `yaml:"dataset"`
	// Table is the table, which must exist with the columns of the records of rollouts.
	// Required.
	Table string `yaml:"table"`
	// CredentialsFile holds Google credentials, such as the JSON key of a service account. Without
	// it the agent uses those of its environment: a workload identity, or the machine's metadata
	// server.
	// Default: none.
	//
	// Load reads it.
	CredentialsFile string `yaml:"credentialsFile"`
	// Endpoint replaces the address of the API, such as by a private endpoint.
	// Default: `https://bigquery.googleapis.com`. Type: URL.
	Endpoint string `yaml:"endpoint"`
}

// Load returns what the file of credentials holds, empty when none is configured.
// Errors are of kind deploy.Invalid and do not show the content.
func (b BigQuery) Load() (strict.Secret, error) {
	if b.CredentialsFile == "" {
		return strict.Secret{}, nil
	}
	return readSecret(b.CredentialsFile, strings.TrimSpace, "the credentials of rolloutExport.bigquery", "write the JSON key of a Google service account into it")
}

func (e RolloutExport) complete(d *strict.Document, r resolver) RolloutExport {
	if e.BigQuery == nil {
		return e
	}
	const at = "rolloutExport.bigquery"
	b := *e.BigQuery
	for field, name := range map[string]struct{ value, pattern, expected string }{
		".project": {b.Project, `^[a-z][a-z0-9.:-]*$`, "the ID of a Google Cloud project"},
		".dataset": {b.Dataset, `^\w+$`, "letters, digits and underscores"},
		".table":   {b.Table, `^[\w-]+$`, "letters, digits, underscores and dashes"},
	} {
		required(d, at+field, name.value)
		if name.value != "" && !regexp.MustCompile(name.pattern).MatchString(name.value) {
			d.Problemf(at+field, "expected %s, found %q", name.expected, name.value)
		}
	}
	if b.Endpoint != "" {
		u, err := url.Parse(b.Endpoint)
		if err != nil || u.Host == "" || u.Scheme != "https" && !(u.Scheme == "http" && loopback(u.Hostname())) {
			d.Problemf(at+".endpoint", "expected https://..., or http://... of this machine: a token goes there")
		}
	}
	b.CredentialsFile = r.path(at+".credentialsFile", b.CredentialsFile)
	return RolloutExport{BigQuery: &b}
}
