package helm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/strvals"

	"github.com/c785c783/piped/piped/deploy"
)

// maxValues is the maximum size of a values file in bytes.
const maxValues = 4 << 20

// values returns the merged values of the options: valueFiles in their order, then setValues
// and setFiles, each sorted by key. Later values take precedence.
func (r *rendering) values(ctx context.Context) (map[string]any, error) {
	out := map[string]any{}
	for _, name := range r.Options.ValueFiles {
		data, err := r.valueFile(ctx, name)
		if err != nil {
			return nil, err
		}
		more, err := loader.LoadValues(bytes.NewReader(data))
		if err != nil {
			return nil, deploy.Errorf(deploy.Invalid, "%s: the values are not valid YAML: %w", r.shown(name), err)
		}
		out = loader.MergeMaps(out, more)
	}
	if err := r.checkIndexes(); err != nil {
		return nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(r.Options.SetValues)) {
		if err := strvals.ParseInto(key+"="+r.Options.SetValues[key], out); err != nil {
			// The parser's error repeats the value, which may be a secret.
			return nil, deploy.Errorf(deploy.Invalid, "input.helmOptions.setValues.%s: expected the syntax of helm --set; a comma that belongs to the value has a backslash in front", key)
		}
	}
	read := func(name []rune) (any, error) {
		data, err := r.ownFile(string(name))
		return string(data), err
	}
	for _, key := range slices.Sorted(maps.Keys(r.Options.SetFiles)) {
		if err := strvals.ParseIntoFile(key+"="+r.Options.SetFiles[key], out, read); err != nil {
			return nil, deploy.Errorf(deploy.Invalid, "input.helmOptions.setFiles.%s: %w", key, err)
		}
	}
	return out, nil
}

// maxIndexes is the maximum sum of the list indexes in setValues and setFiles, because an index
// determines the length of its list.
const maxIndexes = 500_000

var listIndex = regexp.MustCompile(`\[\s*(\d+)`)

// checkIndexes returns an error if the list indexes add up to more than maxIndexes.
func (r *rendering) checkIndexes() error {
	sum := 0
	for name, keys := range map[string]map[string]string{"setValues": r.Options.SetValues, "setFiles": r.Options.SetFiles} {
		for key, value := range keys {
			for _, index := range listIndex.FindAllStringSubmatch(key+"="+value, -1) {
				n, err := strconv.Atoi(index[1])
				if sum += min(n, maxIndexes); err != nil || sum > maxIndexes {
					return deploy.Errorf(deploy.Invalid, "input.helmOptions.%s.%s: the list indexes add up to more than %d", name, key, maxIndexes)
				}
			}
		}
	}
	return nil
}

func (r *rendering) valueFile(ctx context.Context, name string) ([]byte, error) {
	if !isWeb(name) {
		data, err := r.ownFile(name)
		if err != nil {
			return nil, fmt.Errorf("input.helmOptions.valueFiles: %w", err)
		}
		return data, nil
	}
	if err := r.online(name); err != nil {
		return nil, fmt.Errorf("input.helmOptions.valueFiles: %w", err)
	}
	resume := r.wait(ctx, "values "+withoutSecrets(name))
	data, err := r.remotes.client.get(ctx, name, access{}, maxValues)
	resume()
	if err != nil {
		return nil, fmt.Errorf("input.helmOptions.valueFiles: %w", err)
	}
	return data, nil
}

// ownFile reads a file in the application's directory, of at most maxValues bytes.
func (r *rendering) ownFile(name string) ([]byte, error) {
	if !filepath.IsLocal(name) {
		return nil, deploy.Errorf(deploy.Invalid, "%q is not inside the application's directory", name)
	}
	at := path.Join(r.Dir, name)
	in, err := r.Tree.Open(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, deploy.Errorf(deploy.Invalid, "%s: there is no such file in the commit", at)
	}
	if deploy.IsKind(err, deploy.Invalid) { // the error already names the file
		return nil, err
	}
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "%s: %w", at, err)
	}
	defer in.Close()
	data, err := io.ReadAll(io.LimitReader(in, maxValues+1))
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "%s: %w", at, err)
	}
	if len(data) > maxValues {
		return nil, deploy.Errorf(deploy.Invalid, "%s: the file has more than %d bytes", at, maxValues)
	}
	return data, nil
}

// shown returns the name of a values file for messages.
func (r *rendering) shown(name string) string {
	if isWeb(name) {
		return withoutSecrets(name)
	}
	return path.Join(r.Dir, name)
}

func isWeb(name string) bool {
	return strings.HasPrefix(name, "http://") || strings.HasPrefix(name, "https://")
}
