package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"strconv"
	"strings"
)

//go:embed assets
var files embed.FS

// assetPrefix is the path below which assets are served.
const assetPrefix = "/assets/"

// assets are the scripts, styles and images of the page, by their fingerprinted name. They are
// read and compressed once, and immutable.
type assets struct {
	files map[string]asset
	paths map[string]string // by name: address
}

type asset struct {
	kind         string
	plain, small []byte // small is compressed
}

// assetNames are the assets, by the name of their files.
func assetNames() map[string]string {
	return map[string]string{
		"page.css": "page.css", "page.js": "page.js", "figures.js": "figures.js", "icon.svg": "icon.svg",
		"htmx.js": "vendor/htmx/htmx.min.js", "sse.js": "vendor/htmx/hx-sse.min.js",
		"plot.js": "vendor/uplot/uPlot.iife.min.js", "plot.css": "vendor/uplot/uPlot.min.css",
	}
}

// kinds are the media types of assets, by extension.
func assetKinds() map[string]string {
	return map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
}

func newAssets() *assets {
	a := &assets{files: map[string]asset{}, paths: map[string]string{}}
	for name, file := range assetNames() {
		marked, content := readAsset(name, file)
		a.files[marked] = asset{assetKinds()[path.Ext(name)], content, zipped(content)}
		a.paths[name] = assetPrefix + marked
	}
	return a
}

// readAsset returns an asset and its name with the fingerprint.
func readAsset(name, file string) (marked string, content []byte) {
	content, err := files.ReadFile("assets/" + file)
	if err != nil { // embedded, and read by every test
		panic(err)
	}
	content = withoutMap(content)
	sum := sha256.Sum256(content)
	ext := path.Ext(name)
	return strings.TrimSuffix(name, ext) + "-" + hex.EncodeToString(sum[:6]) + ext, content
}

// StyleSheet returns the address of the style sheet, for other pages of the agent.
func StyleSheet() string {
	const name = "page.css"
	marked, _ := readAsset(name, assetNames()[name])
	return assetPrefix + marked
}

// withoutMap removes the comment that names a source map, which is not served.
func withoutMap(content []byte) []byte {
	if i := bytes.LastIndex(content, []byte("//# sourceMappingURL=")); i >= 0 {
		return content[:i]
	}
	return content
}

// ServeHTTP implements http.Handler.
func (a *assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f, ok := a.files[strings.TrimPrefix(r.URL.Path, assetPrefix)]
	if !ok {
		http.NotFound(w, r)
		return
	}
	header, body := w.Header(), f.plain
	header.Set("Content-Type", f.kind)
	header.Set("Cache-Control", "public, max-age=31536000, immutable")
	header.Add("Vary", "Accept-Encoding")
	if acceptsGzip(r) {
		header.Set("Content-Encoding", "gzip")
		body = f.small
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // fails if the client is gone
}
