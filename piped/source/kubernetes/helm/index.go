package helm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/c785c783/piped/piped/deploy"
)

// listed is a version of a chart in the index of a chart repository.
type listed struct {
	Version string   `json:"version"`
	URLs    []string `json:"urls"`
	Digest  string   `json:"digest"`
}

type listing []listed

func (l listing) choose(want string) (listed, error) {
	versions := make([]string, len(l))
	for i, v := range l {
		versions[i] = v.Version
	}
	at, err := choose(versions, want)
	if err != nil {
		return listed{}, err
	}
	return l[at], nil
}

// index returns the versions of a chart in a chart repository. It requests the repository's
// index once per rendering, and downloads it only if it has changed.
func (r *rendering) index(ctx context.Context, address string, how access, name string) (listing, error) {
	shown := withoutSecrets(address)
	data, ok := r.indexes[address]
	if !ok {
		var err error
		if data, err = r.readIndex(ctx, address, how); err != nil {
			return nil, err
		}
		if r.indexes == nil {
			r.indexes = map[string][]byte{}
		}
		r.indexes[address] = data
	}
	var index struct {
		Entries map[string]listing `json:"entries"`
	}
	if err := yaml.Unmarshal(excerpt(data, name), &index); err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "%s/index.yaml is not the index of a chart repository: %w", shown, err)
	}
	if len(index.Entries[name]) == 0 {
		return nil, deploy.Errorf(deploy.Invalid, "chart repository %s has no chart %q", shown, name)
	}
	return index.Entries[name], nil
}

// readIndex returns the index of a chart repository. In the cache, the first line before the
// index is its entity tag.
func (r *rendering) readIndex(ctx context.Context, address string, how access) ([]byte, error) {
	at, err := inRepository(address, "index.yaml")
	if err != nil {
		return nil, err
	}
	kept, _ := r.cache.get(address, "index.yaml")
	etag, data, _ := bytes.Cut(kept, []byte("\n"))
	resume := r.wait(ctx, "chart repository "+withoutSecrets(address))
	now, err := r.remotes.client.ask(ctx, at, how, r.limits.Index, string(etag))
	resume()
	switch {
	case err != nil:
		return nil, err
	case now.same:
		return data, nil
	case now.etag != "":
		r.cache.put(slices.Concat([]byte(now.etag+"\n"), now.data), address, "index.yaml")
	}
	return now.data, nil
}

// excerpt returns the part of an index with the entry of one chart, because parsing a large
// index takes hundreds of megabytes. It returns the whole index if its layout is not Helm's.
func excerpt(index []byte, name string) []byte {
	const head = "\nentries:\n"
	at := bytes.Index(append([]byte("\n"), index...), []byte(head))
	if at < 0 || bytes.Contains(index, []byte("&")) { // the entry may use an anchor from elsewhere
		return index
	}
	body := index[at+len(head)-1:]
	key := "  " + name + ":"
	var out []byte
	for line := range bytes.Lines(body) {
		text := string(bytes.TrimRight(line, "\r\n"))
		entry := strings.HasPrefix(text, "  ") && !strings.HasPrefix(text, "   ") && !strings.HasPrefix(text, "  -")
		switch {
		case out == nil && text == key:
			out = append([]byte("entries:\n"), line...)
		case out != nil && (entry || text != "" && text[0] != ' '):
			return out
		case out != nil:
			out = append(out, line...)
		}
	}
	if out == nil {
		return index
	}
	return out
}

// download downloads a listed chart and checks its digest if the index has one.
func (r *rendering) download(ctx context.Context, address string, how access, chart listed) ([]byte, error) {
	if len(chart.URLs) == 0 {
		return nil, deploy.Errorf(deploy.Invalid, "chart repository %s names no address of version %s", withoutSecrets(address), chart.Version)
	}
	if reference, ok := strings.CutPrefix(chart.URLs[0], ociScheme); ok {
		return r.pull(ctx, reference)
	}
	from, err := inRepository(address, chart.URLs[0])
	if err != nil {
		return nil, err
	}
	resume := r.wait(ctx, "chart "+withoutSecrets(from))
	data, err := r.remotes.client.get(ctx, from, how, r.limits.Archive)
	resume()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	if want := strings.TrimPrefix(chart.Digest, "sha256:"); want != "" && !strings.EqualFold(want, hex.EncodeToString(sum[:])) {
		return nil, deploy.Errorf(deploy.Invalid, "%s is not what the index of its repository lists: its SHA-256 is %x, not %s", withoutSecrets(from), sum, want)
	}
	return data, nil
}

// inRepository resolves an absolute or relative URL in a chart repository with the given
// address. On the same host, it adds the query of that address unless the URL has one.
func inRepository(address, name string) (string, error) {
	base, err := url.Parse(strings.TrimSuffix(address, "/") + "/")
	if err != nil {
		return "", deploy.Errorf(deploy.Invalid, "the address of a chart repository is not valid")
	}
	ref, err := url.Parse(name)
	if err != nil {
		return "", deploy.Errorf(deploy.Invalid, "chart repository %s names an address that is not valid", withoutSecrets(address))
	}
	out := base.ResolveReference(ref)
	if out.RawQuery == "" && out.Host == base.Host {
		out.RawQuery = base.RawQuery
	}
	return out.String(), nil
}
