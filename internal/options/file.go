package options

import (
	"fmt"
	"io"
	"os"
)

// maxFile is more than any file that an option names is long.
const maxFile = 16 << 20

// ReadFile reads a file that an option names: a file that never ends, or that is far too long, is an error.
func ReadFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s is longer than %d MB", name, maxFile>>20)
	}
	return data, err
}
