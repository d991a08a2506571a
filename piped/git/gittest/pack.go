package gittest

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/adler32"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Pack is a hand-made pack with objects that git itself would not create, such as malicious
// ones.
type Pack struct {
	body     bytes.Buffer
	deflater *zlib.Writer
	count    uint32
	// Announce is the number of objects in the pack's header; 0 means the real number.
	Announce uint32
}

// Types of objects in a pack.
const (
	packCommit, packTree, packBlob, packDelta = 1, 2, 3, 6

	packHeader = 12
)

// begin writes the header of an object and returns its offset.
func (p *Pack) begin(kind byte, size int64) (offset int64) {
	offset = packHeader + int64(p.body.Len())
	p.count++
	first := kind<<4 | byte(size&0xf)
	for size >>= 4; size > 0; size >>= 7 {
		p.body.WriteByte(first | 0x80)
		first = byte(size & 0x7f)
	}
	p.body.WriteByte(first)
	return offset
}

// deflate appends the compressed content.
func (p *Pack) deflate(content []byte) {
	if p.deflater == nil { // reused: a new one allocates about a megabyte
		p.deflater = zlib.NewWriter(nil)
	}
	p.deflater.Reset(&p.body)
	_, _ = p.deflater.Write(content) // writing to a buffer cannot fail
	_ = p.deflater.Close()
}

// add appends an object and returns its hash and its offset; name is the type's name.
func (p *Pack) add(kind byte, name string, content []byte) (hash string, offset int64) {
	offset = p.begin(kind, int64(len(content)))
	p.deflate(content)
	sum := sha1.Sum(fmt.Appendf(nil, "%s %d\x00%s", name, len(content), content))
	return hex.EncodeToString(sum[:]), offset
}

// Blob adds a file and returns its hash and its offset.
func (p *Pack) Blob(content []byte) (hash string, offset int64) {
	return p.add(packBlob, "blob", content)
}

// Stored adds a file of less than 64 KiB without compression.
func (p *Pack) Stored(content []byte) {
	p.begin(packBlob, int64(len(content)))
	p.body.Write([]byte{0x78, 0x01, 1})
	n := uint16(len(content))
	p.body.Write(binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(nil, n), ^n))
	p.body.Write(content)
	p.body.Write(binary.BigEndian.AppendUint32(nil, adler32.Checksum(content)))
}

// Zeros adds a file of mib MiB of zero bytes and returns its offset. It does not compute the
// hash.
func (p *Pack) Zeros(mib int64) (offset int64) {
	offset = p.begin(packBlob, mib<<20)
	var block bytes.Buffer
	w := zlib.NewWriter(&block)
	_ = w.Flush()
	header := block.Len()
	_, _ = w.Write(make([]byte, 1<<20))
	_ = w.Flush()
	first := slices.Clone(block.Bytes()[header:])
	p.body.Write(block.Bytes()[:2])
	for range mib {
		p.body.Write(first)
	}
	p.body.Write([]byte{1, 0, 0, 0xff, 0xff}) // the last block, empty
	sum := uint32((mib<<20)%65521)<<16 | 1
	p.body.Write(binary.BigEndian.AppendUint32(nil, sum))
	return offset
}

// Delta adds a delta of the object at offset base, and returns the delta's offset. from is the
// size of the base, size that of the result.
func (p *Pack) Delta(base, from, size int64, instructions []byte) (offset int64) {
	content := binary.AppendUvarint(binary.AppendUvarint(nil, uint64(from)), uint64(size))
	content = append(content, instructions...)
	offset = p.begin(packDelta, int64(len(content)))
	back := offset - base
	way := []byte{byte(back & 0x7f)}
	for back >>= 7; back > 0; back >>= 7 {
		back--
		way = append(way, byte(back&0x7f)|0x80)
	}
	slices.Reverse(way)
	p.body.Write(way)
	p.deflate(content)
	return offset
}

// CopyMiB returns n delta instructions that each copy the first MiB of the base.
func CopyMiB(n int) []byte { return bytes.Repeat([]byte{0x80 | 0x40, 0x10}, n) }

// Entry is an entry of a directory.
type Entry struct {
	Mode, Name, Hash string // mode 100644 or 40000
}

// Tree adds a directory and returns its hash.
func (p *Pack) Tree(entries ...Entry) string {
	var content []byte
	for _, e := range entries {
		hash, err := hex.DecodeString(e.Hash)
		if err != nil {
			panic(err)
		}
		content = append(fmt.Appendf(content, "%s %s\x00", e.Mode, e.Name), hash...)
	}
	hash, _ := p.add(packTree, "tree", content)
	return hash
}

// Nested adds directories nested to a depth, with a file at the bottom. Each directory lists
// the next one under the given number of names. It returns the hash of the outermost one.
func (p *Pack) Nested(depth, names int) string {
	blob, _ := p.Blob([]byte("file\n"))
	below := Entry{Mode: "100644", Hash: blob}
	for range depth {
		var entries []Entry
		for n := range names {
			below.Name = fmt.Sprintf("n%02d", n)
			entries = append(entries, below)
		}
		below = Entry{Mode: "40000", Hash: p.Tree(entries...)}
	}
	return below.Hash
}

// Commit adds a commit and returns its hash.
func (p *Pack) Commit(tree string, parents ...string) string {
	text := "tree " + tree + "\n"
	for _, parent := range parents {
		text += "parent " + parent + "\n"
	}
	text += "author A <a@example.com> 1700000000 +0000\ncommitter A <a@example.com> 1700000000 +0000\n\ncommit\n"
	hash, _ := p.add(packCommit, "commit", []byte(text))
	return hash
}

// Bytes returns the pack.
func (p *Pack) Bytes() []byte {
	count := p.count
	if p.Announce != 0 {
		count = p.Announce
	}
	out := binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), count)
	out = append(out, p.body.Bytes()...)
	sum := sha1.Sum(out)
	return append(out, sum[:]...)
}

// PackServer serves packs over smart HTTP: for each requested commit the pack stored for it.
type PackServer struct {
	URL string

	mu       sync.Mutex
	branches map[string]string
	packs    map[string][]byte
	sent     map[string]int
}

// ServePacks serves packs, by commit hash, until the test ends.
func ServePacks(t testing.TB, packs map[string][]byte) *PackServer {
	s := &PackServer{branches: map[string]string{}, packs: packs, sent: map[string]int{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.URL = server.URL + "/repo.git"
	return s
}

// Set moves a branch to a commit.
func (s *PackServer) Set(branch, commit string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.branches[branch] = commit
}

// Sent returns how often a commit was sent.
func (s *PackServer) Sent(commit string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent[commit]
}

// ServeHTTP implements http.Handler. A request to .../set?branch=name&commit=hash moves
// a branch.
func (s *PackServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case strings.HasSuffix(r.URL.Path, "/set"):
		s.branches[r.URL.Query().Get("branch")] = r.URL.Query().Get("commit")
	case strings.HasSuffix(r.URL.Path, "/info/refs"):
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		out := pkt("# service=git-upload-pack\n") + "0000"
		capabilities := "\x00ofs-delta"
		for name, hash := range s.branches {
			out += pkt(hash + " refs/heads/" + name + capabilities + "\n")
			capabilities = ""
		}
		_, _ = w.Write([]byte(out + "0000"))
	default:
		var body bytes.Buffer
		_, _ = body.ReadFrom(r.Body)
		_, want, _ := strings.Cut(body.String(), "want ")
		want = want[:min(40, len(want))]
		s.sent[want]++
		w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
		_, _ = w.Write(append([]byte(pkt("NAK\n")), s.packs[want]...))
	}
}

// pkt encodes a pkt-line.
func pkt(line string) string { return fmt.Sprintf("%04x%s", len(line)+4, line) }
