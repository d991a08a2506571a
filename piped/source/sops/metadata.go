package sops

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// metadata is the parsed content of the key sops.
type metadata struct {
	groups       []group
	threshold    int // number of groups that are needed, if there are several
	mac          string
	macOnly      bool // the MAC covers only encrypted values
	lastModified string
	rules        rules
}

// group holds one part of the data key, encrypted for each recipient.
type group struct {
	age, pgp []string
	others   []string // names of key services that the agent does not support
}

// clouds are the names of key services by their key in the metadata. The agent does not support
// them.
var clouds = map[string]string{
	"kms": "AWS KMS", "gcp_kms": "GCP KMS", "azure_kv": "Azure Key Vault", "hc_vault": "HashiCorp Vault", "hckms": "Huawei Cloud KMS",
}

func readMetadata(m mapping) (metadata, error) {
	md := metadata{mac: m.text("mac"), macOnly: scalar(m, "mac_only_encrypted") == "true"}
	md.threshold, _ = strconv.Atoi(scalar(m, "shamir_threshold"))
	modified := scalar(m, "lastmodified")
	at, err := time.Parse(time.RFC3339, modified)
	if err != nil {
		return md, errors.New("its metadata has no valid lastmodified")
	}
	md.lastModified = at.Format(time.RFC3339)
	if md.rules, err = readRules(m); err != nil {
		return md, err
	}
	if g := readGroup(m); len(g.age)+len(g.pgp)+len(g.others) > 0 {
		md.groups = []group{g}
		return md, checkRecipients(md.groups)
	}
	for _, e := range m {
		list, _ := e.value.([]any)
		for _, item := range list {
			if g, ok := item.(mapping); ok && e.key == "key_groups" {
				md.groups = append(md.groups, readGroup(g))
			}
		}
	}
	if len(md.groups) == 0 {
		return md, errors.New("its metadata has no keys")
	}
	return md, checkRecipients(md.groups)
}

// Limits of the metadata. Each recipient costs the agent an attempt to decrypt.
const (
	maxRecipients     = 256
	maxRecipientBytes = 256 << 10
	maxRule           = 1 << 10 // bytes of a regular expression
)

// checkRecipients returns an error if there are too many recipients.
func checkRecipients(groups []group) error {
	count, size := 0, 0
	for _, g := range groups {
		for _, text := range slices.Concat(g.age, g.pgp) {
			count++
			size += len(text)
		}
	}
	if count > maxRecipients || size > maxRecipientBytes {
		return fmt.Errorf("its metadata has more than %d age and PGP recipients, or more than %d bytes of them", maxRecipients, maxRecipientBytes)
	}
	return nil
}

// scalar returns the scalar value of a key as a string, "" if there is none.
func scalar(m mapping, key string) string {
	for _, e := range m {
		if e.key != key {
			continue
		}
		switch v := e.value.(type) {
		case string, int, bool:
			return fmt.Sprint(v)
		case time.Time:
			return v.Format(time.RFC3339)
		}
	}
	return ""
}

func readGroup(m mapping) group {
	var g group
	for _, e := range m {
		list, _ := e.value.([]any)
		for _, item := range list {
			key, ok := item.(mapping)
			if !ok {
				continue
			}
			switch e.key {
			case "age":
				g.age = append(g.age, key.text("enc"))
			case "pgp":
				g.pgp = append(g.pgp, key.text("enc"))
			default:
				if name, ok := clouds[e.key]; ok {
					g.others = append(g.others, name)
				}
			}
		}
	}
	return g
}

func readRules(m mapping) (r rules, err error) {
	r = rules{unencryptedSuffix: scalar(m, "unencrypted_suffix"), encryptedSuffix: scalar(m, "encrypted_suffix")}
	set := 0
	for _, text := range []string{r.unencryptedSuffix, r.encryptedSuffix} {
		if text != "" {
			set++
		}
	}
	for key, to := range map[string]**regexp.Regexp{
		"unencrypted_regex": &r.unencryptedKeys, "encrypted_regex": &r.encryptedKeys,
		"unencrypted_comment_regex": &r.unencryptedComment, "encrypted_comment_regex": &r.encryptedComment,
	} {
		text := scalar(m, key)
		if text == "" {
			continue
		}
		set++
		if len(text) > maxRule {
			return r, fmt.Errorf("its metadata has a %s of more than %d bytes", key, maxRule)
		}
		if *to, err = regexp.Compile(text); err != nil {
			return r, fmt.Errorf("its metadata has no valid %s", key)
		}
	}
	switch {
	case set == 0:
		r.unencryptedSuffix = "_unencrypted"
	case set > 1:
		return r, errors.New("its metadata has more than one rule of what is encrypted")
	}
	return r, nil
}

// unflatten converts flattened metadata of dotenv and INI files, which has keys such as
// age__list_0__map_enc, to nested mappings.
func unflatten(flat mapping) mapping {
	left := 4 * maxRecipients
	return unflattened(flat, &left)
}

// unflattened is unflatten for at most *left list items in total. Further items stay flat.
func unflattened(flat mapping, left *int) mapping {
	out := mapping{}
	lists := map[string]int{} // indexes of lists in out
	for _, e := range flat {
		name, rest, ok := strings.Cut(e.key, "__list_")
		index, field, mapped := strings.Cut(rest, "__map_")
		n, err := strconv.Atoi(index)
		if !ok || !mapped || err != nil || n < 0 || n > *left {
			out = append(out, e)
			continue
		}
		at, known := lists[name]
		if !known {
			at = len(out)
			lists[name] = at
			out = append(out, entry{name, []any{}})
		}
		list := out[at].value.([]any)
		for len(list) <= n {
			list = append(list, mapping{})
			*left--
		}
		list[n] = append(list[n].(mapping), entry{field, e.value})
		out[at].value = list
	}
	for i, e := range out { // key groups contain further lists
		list, _ := e.value.([]any)
		for j := range list {
			if m, ok := list[j].(mapping); ok {
				list[j] = unflattened(m, left)
			}
		}
		out[i] = e
	}
	return out
}
