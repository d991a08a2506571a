package git

import (
	"bytes"
	"io"
	"os"
)

// spoolInMemory is the size, in bytes, above which a spool is a file.
const spoolInMemory = 16 << 20

// spool holds the content of one object while a pack is indexed: in memory or, if it is large,
// in an unlinked temporary file.
type spool struct {
	size int64
	data []byte
	file *os.File
	n    int64 // bytes written
}

// newSpool returns an empty spool for size bytes. The caller closes it.
func newSpool(dir string, size int64) (*spool, error) {
	if size <= spoolInMemory {
		return &spool{size: size, data: make([]byte, 0, size)}, nil
	}
	f, err := os.CreateTemp(dir, "tmp_object_")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		_ = f.Close()
		return nil, err
	}
	return &spool{size: size, file: f}, nil
}

// Write implements io.Writer. It fails beyond the spool's size.
func (s *spool) Write(p []byte) (int, error) {
	if s.n += int64(len(p)); s.n > s.size {
		return 0, io.ErrShortBuffer
	}
	if s.file != nil {
		return s.file.Write(p)
	}
	s.data = append(s.data, p...)
	return len(p), nil
}

// ReadAt implements io.ReaderAt.
func (s *spool) ReadAt(p []byte, at int64) (int, error) {
	if s.file != nil {
		return s.file.ReadAt(p, at)
	}
	return bytes.NewReader(s.data).ReadAt(p, at)
}

// reader returns a reader of the whole content.
func (s *spool) reader() io.Reader { return io.NewSectionReader(s, 0, s.size) }

// held returns the size of the spool's memory in bytes.
func (s *spool) held() int64 { return int64(cap(s.data)) }

func (s *spool) close() {
	if s.file != nil {
		_ = s.file.Close() // its content is not needed
	}
}
