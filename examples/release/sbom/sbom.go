// Package sbom lists what programs consist of, as SPDX 2.3 documents in JSON. It reads
// the modules from the programs themselves, where the Go linker has recorded them, and
// asks no service.
package sbom

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// Options says what a document is about.
type Options struct {
	Name     string // of the archive or image, such as piped_v1.2.0_linux_amd64
	Version  string
	Purpose  string // SPDX's primaryPackagePurpose: ARCHIVE or CONTAINER
	Source   string // where its source is: a Git address with a commit
	Created  time.Time
	Programs []string // their files
	Data     []Data   // what else it contains
}

// Data is content that no program consists of, such as certificates.
type Data struct {
	Name    string
	Version string
	Module  bool // it is taken from the Go module of that name
	Comment string
}

// Namespace begins the identifiers of documents. Nothing has to answer there.
const Namespace = "https://github.com/c785c783/piped/spdx/"

type document struct {
	SPDXVersion       string         `json:"spdxVersion"`
	DataLicense       string         `json:"dataLicense"`
	SPDXID            string         `json:"SPDXID"`
	Name              string         `json:"name"`
	DocumentNamespace string         `json:"documentNamespace"`
	CreationInfo      creationInfo   `json:"creationInfo"`
	Packages          []*part        `json:"packages"`
	Relationships     []relationship `json:"relationships"`
}

type creationInfo struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

// part is a package in SPDX's sense.
type part struct {
	SPDXID           string        `json:"SPDXID"`
	Name             string        `json:"name"`
	VersionInfo      string        `json:"versionInfo"`
	Purpose          string        `json:"primaryPackagePurpose"`
	DownloadLocation string        `json:"downloadLocation"`
	FilesAnalyzed    bool          `json:"filesAnalyzed"`
	LicenseConcluded string        `json:"licenseConcluded"`
	LicenseDeclared  string        `json:"licenseDeclared"`
	CopyrightText    string        `json:"copyrightText"`
	Comment          string        `json:"comment,omitempty"`
	Checksums        []checksum    `json:"checksums,omitempty"`
	ExternalRefs     []externalRef `json:"externalRefs,omitempty"`
}

type checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type externalRef struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	Element string `json:"spdxElementId"`
	Type    string `json:"relationshipType"`
	Related string `json:"relatedSpdxElement"`
}

const (
	documentID  = "SPDXRef-DOCUMENT"
	noAssertion = "NOASSERTION"
	ownLicense  = "Apache-2.0"
)

// Make returns the document about some programs and data.
func Make(o Options) ([]byte, error) {
	d := &document{
		SPDXVersion: "SPDX-2.3", DataLicense: "CC0-1.0", SPDXID: documentID, Name: o.Name,
		CreationInfo: creationInfo{o.Created.UTC().Format(time.RFC3339), []string{"Tool: github.com/c785c783/piped/examples/release"}},
	}
	top := newPart("Package", o.Name, o.Version, o.Purpose)
	top.DownloadLocation, top.LicenseDeclared = o.Source, ownLicense
	d.Packages = append(d.Packages, top)
	d.relate(documentID, "DESCRIBES", top)
	modules, sums := map[string]*part{}, sha256.New()
	for _, file := range o.Programs {
		program, used, err := readProgram(file, o)
		if err != nil {
			return nil, err
		}
		fmt.Fprintln(sums, program.Checksums[0].Value)
		d.Packages = append(d.Packages, program)
		d.relate(top.SPDXID, "CONTAINS", program)
		for _, m := range used {
			modules[m.SPDXID] = m
			d.relate(program.SPDXID, "DEPENDS_ON", m)
		}
	}
	for _, data := range o.Data {
		part := newPart("Data", data.Name, data.Version, "FILE")
		if data.Module {
			part = newModule(data.Name, data.Version)
		}
		part.Comment = data.Comment
		modules[part.SPDXID] = part
		d.relate(top.SPDXID, "CONTAINS", part)
	}
	for _, m := range modules {
		d.Packages = append(d.Packages, m)
	}
	slices.SortStableFunc(d.Packages, func(a, b *part) int { return cmp.Compare(a.SPDXID, b.SPDXID) })
	d.DocumentNamespace = Namespace + o.Name + "-" + hex.EncodeToString(sums.Sum(nil))
	return encode(d)
}

// encode writes the document with the characters of a package URL as they are.
func encode(d *document) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(d)
	return out.Bytes(), err
}

func (d *document) relate(element, kind string, related *part) {
	d.Relationships = append(d.Relationships, relationship{element, kind, related.SPDXID})
}

// readProgram describes a program and the modules that it is linked from.
func readProgram(file string, o Options) (program *part, modules []*part, err error) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return nil, nil, fmt.Errorf("read the modules of a program: %w", err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, fmt.Errorf("read a program: %w", err)
	}
	sum := sha256.Sum256(content)
	program = newPart("Program", filepath.Base(file), o.Version, "APPLICATION")
	program.DownloadLocation, program.LicenseDeclared = o.Source, ownLicense
	program.Checksums = []checksum{{"SHA256", hex.EncodeToString(sum[:])}}
	modules = []*part{newModule("stdlib", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, m := range info.Deps {
		modules = append(modules, linked(m))
	}
	return program, modules, nil
}

// linked describes a module with the checksum that go.sum has of it. SPDX has no
// algorithm for that one.
func linked(m *debug.Module) *part {
	if m.Replace != nil {
		m = m.Replace
	}
	p := newModule(m.Path, m.Version)
	if m.Sum != "" {
		p.Comment = "go.sum " + m.Sum
	}
	return p
}

func newModule(path, version string) *part {
	p := newPart("Module", path, version, "LIBRARY")
	p.ExternalRefs = []externalRef{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")}}
	return p
}

var notInID = regexp.MustCompile(`[^a-zA-Z0-9.-]`)

func newPart(kind, name, version, purpose string) *part {
	return &part{
		SPDXID: "SPDXRef-" + kind + "-" + notInID.ReplaceAllString(name+"-"+version, "-"), Name: name, VersionInfo: version, Purpose: purpose,
		DownloadLocation: noAssertion, LicenseConcluded: noAssertion, LicenseDeclared: noAssertion, CopyrightText: noAssertion,
	}
}
