package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/c785c783/piped/examples/release/tree"
)

// Lines of Chart.yaml.
var (
	chartName    = regexp.MustCompile(`(?m)^name: *"?([a-z0-9-]+)"? *$`)
	chartVersion = regexp.MustCompile(`(?m)^version:.*$`)
	appVersion   = regexp.MustCompile(`(?m)^appVersion:.*$`)
)

// chart packs the Helm chart with the version of the release, as `helm package` names it.
// A source without a chart has none.
func (r release) chart() error {
	dir := filepath.Join(r.source.Dir, chartDir)
	about, err := os.ReadFile(filepath.Join(dir, "Chart.yaml"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the chart: %w", err)
	}
	name := chartName.FindSubmatch(about)
	if name == nil || !chartVersion.Match(about) || !appVersion.Match(about) {
		return fmt.Errorf("pack the chart: %s/Chart.yaml needs lines with name, version and appVersion", chartDir)
	}
	version := strings.TrimPrefix(r.source.Version, "v")
	about = chartVersion.ReplaceAll(about, []byte("version: "+version))
	about = appVersion.ReplaceAll(about, []byte(`appVersion: "`+r.source.Version+`"`))
	var files []tree.File
	err = filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		inChart, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		text := about
		if inChart != "Chart.yaml" {
			if text, err = os.ReadFile(file); err != nil {
				return err
			}
		}
		files = append(files, tree.Text(string(name[1])+"/"+inChart, text))
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the chart: %w", err)
	}
	packed := filepath.Join(r.dir, string(name[1])+"-"+version+".tgz")
	fmt.Fprintln(r.stdout, packed)
	return tree.WriteArchive(packed, files, r.source.Time)
}
