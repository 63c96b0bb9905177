package mgmclient

import "os"

// Environment is the variable that holds the connect string where no option gives one.
const Environment = "NDB_CONNECTSTRING"

// ConnectString chooses what an option gives, else the environment's, else the default (empty).
func ConnectString(option string) string {
	if option != "" {
		return option
	}
	return os.Getenv(Environment)
}
